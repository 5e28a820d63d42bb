# SPDX-License-Identifier: Apache-2.0
"""Filter for the owner of a host: the manager that the host belongs to."""

import hashlib
import json
import re

# The values come from the host, so a message has only what these patterns match.
ID = re.compile(r"[0-9a-f]{16}\Z")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")


def word(value):
    return value if isinstance(value, str) and WORD.match(value) else ""


def identity(text):
    """Parse an identity file. One that cannot be parsed belongs to nobody known."""
    try:
        found = json.loads(text)
        if ID.match(found["id"]):
            return {"id": found["id"], "name": word(found.get("name")), "addr": word(found.get("addr"))}
    except (ValueError, TypeError, KeyError):
        pass
    return {"id": "", "name": "", "addr": ""}


def describe(manager):
    """Name a manager in words."""
    if not manager["id"]:
        return "a manager whose identity file cannot be read"
    name = " ".join(filter(None, [manager["name"], manager["addr"] and "at " + manager["addr"]]))
    return "the manager %s (id %s)" % (name or "without a name", manager["id"])


def agent_owner(lines, manager, key):
    """Return the owner of a host from the output of owner.sh.

    kind is none, own (an agent of this manager), foreign, manager (the host of
    another manager) or self (the host of this manager, and the manager runs).
    text names the owner and the evidence.
    """
    facts = dict(line.split("=", 1) for line in reversed(lines) if "=" in line)
    running = facts.get("active") in ("active", "activating", "reloading", "deactivating")
    enabled = facts.get("enabled", "").startswith("enabled")

    agent = identity(facts["agent"]) if "agent" in facts else None
    evidence = []
    if running:
        evidence.append("clusterm.service runs")
    if enabled:
        evidence.append("clusterm.service is enabled")
    # The data of a manager that was taken over stay on its host.
    if "data" in facts and (evidence or not agent or agent["id"] != manager["id"]):
        evidence.append("it has the data directory of a manager")

    if evidence:
        here = identity(facts["manager"]) if "manager" in facts else None
        if here and here["id"] == manager["id"] and running:
            return {"kind": "self", "text": "this manager runs on the host"}
        who = describe(here) if here else "a manager without an identity file"
        return {"kind": "manager", "text": "it is the host of %s: %s" % (who, ", ".join(evidence))}

    if agent:
        if agent["id"] == manager["id"]:
            return {"kind": "own", "text": "its agent belongs to this manager"}
        text = "its agent belongs to %s" % describe(agent)
        # Another identity at the same place: the store was lost with its data directory.
        if agent["addr"] and all(agent[k] == manager.get(k) for k in ("name", "addr")):
            text += ", which is this manager before its store was lost: take the host over"
        return {"kind": "foreign", "text": text}

    # Agents that somebody installed without the role have no identity file.
    if "key" in facts or "joins" in facts:
        if facts.get("key") in [hashlib.sha256(line.encode()).hexdigest() for line in key.split()]:
            return {"kind": "own", "text": "its agent has the gossip key of this manager"}
        joins = [w for w in re.split(r"[\s\[\]\"',]+", facts.get("joins", "")) if word(w)]
        text = "its agent has another gossip key"
        if joins:
            text += " and joins " + ", ".join(joins[:3])
        return {"kind": "foreign", "text": text}

    return {"kind": "none", "text": "it has neither agent nor manager"}


class FilterModule:
    def filters(self):
        return {"agent_owner": agent_owner}
