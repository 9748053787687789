"""What a stand-in of W&B's server holds, and its answer to each GraphQL operation that wandb 0.31 makes.

They were seen in its requests, for a run, its upload, a sweep's agent, the public API and a report. What the real
server does beyond keeping what it is given cannot be tried with it.
"""

import itertools
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

KEY = "5ec2e7" * 6 + "abcd"
"""Well-formed, so that wandb takes it for a key; it opens nothing."""

Answer = dict[str, Any]


@dataclass
class Kept:
    """What the server holds of one run."""

    fields: Answer = field(default_factory=dict)
    config: Answer = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    finished: bool = False

    @property
    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.get("wandb-history.jsonl", [])]

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.lines.get("wandb-summary.json") or ["{}"])[-1])

    def take(self, name: str, offset: int, content: list[str]) -> None:
        """Lines of a file from an offset on; what was there is written over."""
        lines = self.lines.setdefault(name, [])
        lines[offset : offset + len(content)] = content


class StandIn:
    """The server: what it was given, and the fault it has.

    Attributes:
        runs: by run id.
        views: the reports.
        sweeps: by name: the YAML text, the runs to be given out and how many were.
        unknown: the GraphQL operations that it has no answer to.
        fault: done to every request while it is set; None is health.
        fault_then: becomes the fault once a run has begun.
    """

    def __init__(self) -> None:
        self.runs: dict[str, Kept] = {}
        self.views: list[Answer] = []
        self.sweeps: dict[str, Answer] = {}
        self.unknown: list[str] = []
        self.fault: Callable[[Any], bool] | None = None
        self.fault_then: Callable[[Any], bool] | None = None
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes wandb talk to it."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}

    def answer(self, name: str, values: Mapping[str, Any]) -> Answer:
        """The data of one GraphQL operation."""
        method = getattr(self, f"on_{name}", None)
        if method is None:
            self.unknown.append(name)
            return {}
        with self.lock:
            given = method(values)
        if self.fault_then and name == "UpsertBucket":
            self.fault = self.fault_then
        return given

    def on_Viewer(self, _: Any) -> Answer:
        viewer = {"id": "VXNlcjox", "entity": "team", "username": "person", "flags": "{}", "teams": {"edges": []}}
        return {"viewer": {**viewer, "email": "", "admin": False}}

    def on_ServerFeaturesQuery(self, _: Any) -> Answer:
        return {"serverInfo": {"features": []}}

    def on_OrganizationCoreWeaveOrganizationID(self, _: Any) -> Answer:
        return {"entity": {"organization": {"coreWeaveOrganizationId": None}}}

    def on_RunResumeStatus(self, values: Mapping[str, Any]) -> Answer:
        kept = self.runs.get(values["name"])
        return {"model": None if kept is None else {**self.project(values), "bucket": self.bucket(values["name"])}}

    def on_UpsertBucket(self, values: Mapping[str, Any]) -> Answer:
        new = values["name"] not in self.runs
        kept = self.runs.setdefault(values["name"], Kept())
        kept.fields |= {key: value for key, value in values.items() if value is not None}
        kept.config |= json.loads(values["config"] or "{}")
        return {
            "upsertBucket": {
                "bucket": {**self.bucket(values["name"]), "project": self.project(values)},
                "inserted": new,
            }
        }

    def project(self, values: Mapping[str, Any]) -> Answer:
        entity = {"id": "RW50aXR5OjE=", "name": values.get("entity") or "team"}
        return {"id": "UHJvamVjdDox", "internalId": "UHJvamVjdDox", "name": values.get("project"), "entity": entity}

    def bucket(self, name: str) -> Answer:
        kept = self.runs[name]
        history, events = kept.lines.get("wandb-history.jsonl", []), kept.lines.get("wandb-events.jsonl", [])
        return {
            "id": f"run-{name}",
            "name": name,
            "displayName": kept.fields.get("displayName"),
            "description": None,
            "notes": None,
            "tags": kept.fields.get("tags", []),
            "config": json.dumps(kept.config),
            "wandbConfig": json.dumps({"t": {}}),
            "sweepName": kept.fields.get("sweep"),
            "summaryMetrics": json.dumps(kept.summary),
            "historyLineCount": len(history),
            "eventsLineCount": len(events),
            "logLineCount": 0,
            "historyTail": json.dumps(history[-1:]),
            "eventsTail": json.dumps(events[-1:]),
        }

    def on_CreateRunFiles(self, values: Mapping[str, Any]) -> Answer:
        files = [{"name": name, "uploadUrl": f"{self.url}/storage/{name}"} for name in values["files"]]
        return {"createRunFiles": {"runID": f"run-{values['run']}", "uploadHeaders": [], "files": files}}

    def on_MarkRunFilesUploaded(self, _: Any) -> Answer:
        return {"markRunFilesUploaded": {"success": True}}

    def on_RunStoppedStatus(self, _: Any) -> Answer:
        return {"project": {"run": {"stopped": False}}}

    def on_GetDefaultEntity(self, _: Any) -> Answer:
        return {"viewer": {"id": "VXNlcjox", "entity": "team"}}

    def on_Runs(self, values: Mapping[str, Any]) -> Answer:
        group = json.loads(values.get("filters") or "{}").get("group")
        chosen = [name for name, kept in self.runs.items() if group in (None, kept.fields.get("groupName"))]
        edges = [{"node": self.node(name), "cursor": name} for name in chosen]
        runs = {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}
        return {"project": {**self.project(values), "runCount": len(chosen), "readOnly": False, "runs": runs}}

    def on_Run(self, values: Mapping[str, Any]) -> Answer:
        return {"project": {**self.project(values), "run": self.node(values["name"])}}

    def node(self, name: str) -> Answer:
        """A run as the public API shows it."""
        kept = self.runs[name]
        return {
            **self.bucket(name),
            "projectId": "1",
            "state": "finished" if kept.finished else "running",
            "group": kept.fields.get("groupName"),
            "jobType": kept.fields.get("jobType"),
            "commit": None,
            "readOnly": False,
            "createdAt": "2026-01-01T00:00:00",
            "heartbeatAt": "2026-01-01T00:00:00",
            "systemMetrics": "{}",
            "historyKeys": self.keys_of(kept),
            "user": {"name": "person", "username": "person"},
        }

    def on_GetProjects(self, values: Mapping[str, Any]) -> Answer:
        node = {"__typename": "Project", "id": "UHJvamVjdDox", "name": "posenc", "entityName": values["entity"]}
        node |= {"createdAt": "2026-01-01T00:00:00", "isBenchmark": False, "user": None}
        page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
        return {"models": {"pageInfo": page, "edges": [{"node": node}]}}

    def on_ProjectInternalId(self, values: Mapping[str, Any]) -> Answer:
        return {"project": self.project({"project": values["projectName"], "entity": values["entityName"]})}

    def on_upsertView(self, values: Mapping[str, Any]) -> Answer:
        self.views.append(dict(values))
        project = {"id": "UHJvamVjdDox", "name": values["projectName"], "entityName": values["entityName"]}
        shown = {key: values[key] for key in ("type", "name", "displayName", "description", "spec")}
        view = {**shown, "id": "VmlldzoxMjM=", "project": project, "updatedAt": "2026-01-01T00:00:00"}
        return {"upsertView": {"view": view, "inserted": True}}

    def keys_of(self, kept: Kept) -> Answer:
        return {"lastStep": max([row["_step"] for row in kept.history], default=-1), "keys": {}, "sets": []}

    def on_RunHistoryKeys(self, values: Mapping[str, Any]) -> Answer:
        return {"project": {"run": {"historyKeys": self.keys_of(self.runs[values["name"]])}}}

    def on_RunParquetHistory(self, _: Any) -> Answer:
        return {"project": {"run": {"parquetHistory": {"parquetUrls": []}}}}

    def on_HistoryPage(self, values: Mapping[str, Any]) -> Answer:
        rows = self.runs[values["run"]].history
        asked = [json.dumps(row) for row in rows if values["minStep"] <= row["_step"] < values["maxStep"]]
        return {"project": {"run": {"history": asked}}}

    def on_UpsertSweep(self, values: Mapping[str, Any]) -> Answer:
        name = f"sweep{len(self.sweeps)}"
        wanted = yaml.safe_load(values["config"])["parameters"]
        grid = itertools.product(*([(key, value) for value in one["values"]] for key, one in wanted.items()))
        self.sweeps[name] = {"config": values["config"], "left": list(map(dict, grid)), "given": []}
        sweep = {"name": name, "project": self.project({"project": values["projectName"]})}
        return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}

    def on_SweepWithRuns(self, values: Mapping[str, Any]) -> Answer:
        sweep = {"id": "1", "name": values["sweep"], "config": self.sweeps[values["sweep"]]["config"]}
        return {"project": {"sweep": {**sweep, "runs": {"edges": []}}}}

    def on_CreateAgent(self, values: Mapping[str, Any]) -> Answer:
        return {"createAgent": {"agent": {"id": values["sweep"]}}}

    def on_Heartbeat(self, values: Mapping[str, Any]) -> Answer:
        """The next run of the grid, once the one before is done."""
        sweep = self.sweeps[values["id"]]
        commands: list[Answer] = []
        if not json.loads(values["runState"]):
            if sweep["left"]:
                chosen = {key: {"value": value} for key, value in sweep["left"].pop(0).items()}
                name = f"agent{len(sweep['given'])}"
                sweep["given"].append(name)
                program = yaml.safe_load(sweep["config"])["program"]
                commands = [{"type": "run", "run_id": name, "program": program, "args": chosen}]
            else:
                commands = [{"type": "exit"}]
        return {"agentHeartbeat": {"agent": {"id": values["id"]}, "commands": json.dumps(commands)}}

    def stream(self, run: str, body: Mapping[str, Any]) -> Answer:
        """What a run appends to its files while it goes on."""
        with self.lock:
            kept = self.runs.setdefault(run, Kept())
            for name, chunk in (body.get("files") or {}).items():
                kept.take(name, chunk.get("offset", 0), chunk["content"])
            kept.finished |= bool(body.get("complete"))
        return {"exitcode": None, "limits": {}}
