"""posenc: how much faster does a transformer converge with rotary position embedding?"""
