import gc
import subprocess
import sys

from posenc.training.run import gc_paused


def test_garbage_is_not_looked_for_meanwhile_and_is_again_afterwards():
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_a_sweep_leaves_behind_is_still_found():
    """The second run says again that its imports are there; the first one's model must not stay for ever."""
    code = """if True:
        import gc, weakref
        from posenc.training.run import freeze_imports

        class Model: pass

        freeze_imports()
        model = Model()
        model.itself, seen = model, weakref.ref(model)
        del model
        freeze_imports()
        gc.collect()
        assert seen() is None
    """
    subprocess.run([sys.executable, "-c", code], check=True)
