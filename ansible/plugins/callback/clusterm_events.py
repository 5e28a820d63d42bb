# SPDX-License-Identifier: Apache-2.0
"""Reports a run of ansible-playbook as events, one JSON object per line, and admits helpers to their plays."""

import datetime
import functools
import json
import os
import re
import sys
import time

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import connection_loader
from ansible.template import Templar

DOCUMENTATION = """
    name: clusterm_events
    type: notification
    short_description: Reports the run as events, one JSON object per line
    description:
      - Appends to the file or FIFO in the environment variable CLUSTERM_EVENTS. Without the variable, it does nothing.
      - An event never contains the arguments or the whole result of a task. The event of a failure contains its message
        and the end of its output; for a task with C(no_log), neither.
      - The event of a task has C(unselected) if only its tag C(always) lets it run, and C(executed) if it runs in a check.
      - In check mode, it has C(foreseen) if the task would change the host, with the C(diff) as far as the module
        reports one, and C(unjudged) if check mode kept the task from being judged. The texts of a host have a limit.
      - The last event has what the run says about each host, so that it does not depend on the events before. C(judged)
        counts the tasks that compared the host with their aim; C(doubt) is why the host may differ all the same.
      - An error of the file ends the events, but never the run.
      - In a run with the limit C(job_targets), a play whose own C(hosts) names C(job_helpers) acts on that group as
        well. Every other play stays within the limit. The run ends if that cannot be ensured.
    requirements:
      - enabled by name, as in ANSIBLE_CALLBACKS_ENABLED=clusterm_events
"""

MESSAGE_BYTES = 4096
HEADLINE_BYTES = 240
HEADLINE_LINES = 3
ITEM_BYTES = 256
DIFF_BYTES = 16 << 10  # of one task on one host
DIFF_LINE_BYTES = 1024
HOST_DIFF_BYTES = 128 << 10  # of all tasks on one host
OUTPUT_LINES = 20  # of stdout and of stderr, in a message
CUT = "…"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HIDDEN = "the result is hidden by no_log"
TARGETS = "job_targets"
HELPERS = "job_helpers"
FACTS = ("gather_facts", "ansible.builtin.gather_facts", "ansible.legacy.gather_facts")
OWN_COLLECTIONS = ("ansible.builtin.", "ansible.legacy.")
CHECK_MODE = "ansible_check_mode"
# Actions that say nothing about a host's configuration. NO_CHANGE says something where a run is not a check.
NEUTRAL = {
    "add_host", "debug", "gather_facts", "getent", "group_by", "import_role", "import_tasks", "include", "include_role",
    "include_tasks", "include_vars", "meta", "package_facts", "pause", "ping", "service_facts", "set_fact", "set_stats",
    "setup", "validate_argument_spec", "wait_for_connection",
}
NO_CHANGE = {"assert", "fail", "fetch", "find", "slurp", "stat", "uri", "wait_for"}
ENDS = ("end_play", "end_batch", "end_host", "end_role")
DOUBT_BYTES = 300
MAGIC = {
    "environment", "group_names", "groups", "hostvars", "inventory_dir", "inventory_file", "inventory_hostname",
    "inventory_hostname_short", "omit", "play_hosts", "playbook_dir", "role_names", "vars",
}
EXIT_LIMIT = 97  # exit status of a run whose limit cannot be ensured


def shorten(text, limit):
    """Return text cut to limit bytes of UTF-8, with a mark at the end."""
    raw = str(text).strip().encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    return raw[: limit - len(CUT.encode())].decode("utf-8", "ignore") + CUT


def tail(text, limit):
    """Return the last lines of text within limit bytes, with a mark if some are missing."""
    text = str(text).strip()
    lines = text.splitlines()[-OUTPUT_LINES:]
    last = "\n".join(lines)
    raw = last.encode("utf-8", "replace")
    if len(raw) > limit:
        raw = raw[-(limit - len(CUT.encode())):]
    short = raw.decode("utf-8", "ignore")
    return short if len(short) == len(text) else CUT + short


def last_lines(values):
    """Return the end of stderr, or else of stdout, as one line: the last lines with words, HEADLINE_LINES at most."""
    for name in ("stderr", "module_stderr", "stdout", "module_stdout"):
        lines = [line.strip() for line in str(values.get(name) or "").splitlines()]
        lines = [line for line in lines if any(c.isalnum() for c in line)]
        if lines:
            # The last line matters most, so the room is for it first.
            head = shorten(lines[-1], HEADLINE_BYTES)
            for line in reversed(lines[-HEADLINE_LINES:-1]):
                longer = line + " / " + head
                if len(longer.encode()) > HEADLINE_BYTES:
                    break
                head = longer
            return head
    return ""


def attribute(result, name):
    """Return an attribute of a task result: result.task in current Ansible, result._task in earlier versions."""
    return getattr(result, name if hasattr(result, name) else "_" + name)


def is_hidden(result, values):
    """Report whether no_log hides the result."""
    no_log = getattr(attribute(result, "task"), "no_log", False) or values.get("_ansible_no_log")
    return bool(no_log or "censored" in values)


def unselected(task):
    """Report whether the tags of the command line do not select the task, so that it runs only by the tag always."""
    if "always" not in (task.tags or ()):
        return False
    chosen = set(context.CLIARGS.get("tags") or ())
    if not chosen or "all" in chosen:
        # Without tags, only the facts that a play gathers by itself are nobody's choice.
        return task.action in FACTS and list(task.tags) == ["always"]
    return not chosen & {*task.tags, "tagged"}


def executed(task):
    """Report whether the run is a check, and the task is executed all the same."""
    # An expression is not evaluated here, so it counts as executed.
    return bool(context.CLIARGS.get("check")) and getattr(task, "check_mode", True) is not True


def checks(task):
    """Report whether the task runs in check mode: because the run is a check, or by its own check_mode."""
    return getattr(task, "check_mode", False) is True


def foreseen(task, values):
    """Report whether the task runs in check mode, and would change the host."""
    if not checks(task):
        return False
    items = [item for item in values.get("results") or () if isinstance(item, dict)]
    # A loop with a failed item has the changes of the others.
    return bool(values.get("changed") or any(item.get("changed") and not item.get("failed") for item in items))


def unjudged(task, values, skipped=False):
    """Report whether the task was skipped because it runs in check mode, wholly or in part.

    skipped: the task was skipped as a whole. Only the results of its items say so themselves.

    A module that does not support check mode skips itself, and a command without
    C(creates) or C(removes) does. Ansible gives a reason when it skips a task
    for its condition. no_log hides that reason, so such a task counts as unjudged.
    """
    if not checks(task):
        return False
    items = [item for item in values.get("results") or () if isinstance(item, dict) and item.get("skipped")]
    return any(not explained(part) for part in items or [values] * skipped)


def explained(values):
    """Report whether the result says that the task would be skipped without check mode, too."""
    if any(name in values for name in ("skip_reason", "skipped_reason", "false_condition")):
        return True
    return bool(re.search("matching (creates|removes) option", str(values.get("msg", ""))))


def module(task):
    """Return the module of a task, without the collection of Ansible itself."""
    for collection in OWN_COLLECTIONS:
        if task.action.startswith(collection):
            return task.action[len(collection):]
    return task.action


def judges(task):
    """Report whether a success of the task says that the host is as the task wants it."""
    name = module(task)
    if name in NEUTRAL or name.endswith(("_facts", "_info")):
        return False
    if not context.CLIARGS.get("check"):
        return True
    return name not in NO_CHANGE and not executed(task)


def is_template(value):
    """Report whether the value of a variable has a template in it."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, dict):
        return any(is_template(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(is_template(v) for v in value)


class CheckModeNames:
    """Knows which expressions of a play depend on whether the run is a check.

    A task may be skipped by its condition because of the check alone. Besides
    ansible_check_mode itself, an expression may use a variable that does.
    """

    def __init__(self):
        self.names = {CHECK_MODE}
        self.pattern = None

    def mentions(self, value):
        """Report whether an expression, or one of a list or dictionary of them, uses one of the names."""
        if isinstance(value, str):
            if self.pattern is None:
                self.pattern = re.compile(r"\b(?:%s)\b" % "|".join(map(re.escape, sorted(self.names))))
            return bool(self.pattern.search(value))
        if isinstance(value, dict):
            return any(self.mentions(v) for v in value.values())
        return isinstance(value, (list, tuple)) and any(self.mentions(v) for v in value)

    def learn(self, values):
        """Add the variables among values that use one of the names."""
        # The variables of Ansible itself are no expressions, and some are large.
        texts = {
            name: value for name, value in values.items()
            if name not in MAGIC and not name.startswith("ansible_") and is_template(value)
        }
        while True:
            found = {name for name, value in texts.items() if name not in self.names and self.mentions(value)}
            if not found:
                return
            self.names |= found
            self.pattern = None


class Judgement:
    """What a run says about one host: counts of tasks, and why the host may differ in spite of them."""

    def __init__(self):
        self.counts = {"judged": 0, "foreseen": 0, "unjudged": 0, "executed": 0}
        self.doubt = ""
        self.failure = ""  # in a failure that the playbook may still rescue

    def add(self, name, is_so):
        self.counts[name] += bool(is_so)

    def fields(self, counts):
        """Return what is not zero. counts are Ansible's of the host."""
        found = {name: count for name, count in self.counts.items() if count}
        rescued = not counts.get("failures") and not counts.get("unreachable")
        doubt = self.doubt or (rescued and self.failure)
        if doubt:
            found["doubt"] = shorten(doubt, DOUBT_BYTES)
        return found


def whole_lines(text, limit):
    """Return the first lines of text within limit bytes. A line is never cut: a part of a secret could not be masked."""
    lines, size = [], 0
    for line in COLOUR.sub("", str(text)).splitlines():
        if len(line.encode("utf-8", "replace")) > DIFF_LINE_BYTES:
            line = "%s(a line of %d characters)" % (line[:1], len(line))
        size += len(line.encode("utf-8", "replace")) + 1
        if size > limit:
            lines.append(CUT)
            break
        lines.append(line)
    return "\n".join(lines)


def place(task):
    """Return the file and line of a task, relative to the folder of playbooks or to that of the bundled roles."""
    path, _, line = str(task.get_path() or "").rpartition(":")
    if not path:
        return ""
    relative = os.path.relpath(path, os.getcwd())
    if relative.startswith(".."):
        at = path.rfind("/roles/")
        relative = path[at + 1:] if at >= 0 else os.path.basename(path)
    return shorten("%s:%s" % (relative, line), ITEM_BYTES)


def cause(result):
    """Return the cause of a failure, without the arguments and the whole result of the task."""
    values = attribute(result, "result")
    if is_hidden(result, values):
        return HIDDEN
    # For a loop, the message of its first failure replaces "one or more items failed".
    for item in values.get("results") or ():
        if isinstance(item, dict) and (item.get("failed") or item.get("unreachable")):
            values = item
            break
    if "censored" in values or values.get("_ansible_no_log"):
        return HIDDEN
    message = values.get("msg") or values.get("reason") or values.get("exception") or ""
    if isinstance(message, (list, tuple)):
        message = "\n".join(str(m) for m in message)
    message = str(message).strip()
    parts = [message]
    # These messages name no cause. The end of the output does.
    if message.startswith(("non-zero return code", "MODULE FAILURE")):
        last = last_lines(values)
        if last:
            parts.insert(0, last)
    if isinstance(values.get("rc"), int) and values["rc"] != 0:
        parts.append("rc=%d" % values["rc"])
    for name in ("stderr", "module_stderr", "stdout", "module_stdout"):
        text = str(values.get(name) or "").strip()
        if text and text not in message and " / ".join(text.split("\n")) != parts[0]:
            parts.append("%s: %s" % (name.replace("module_", ""), tail(text, MESSAGE_BYTES // 4)))
    return shorten("\n".join(p for p in parts if p) or "failed without a message", MESSAGE_BYTES)


def never_fails(method):
    """Turn an exception of a callback into a warning, so that it never fails the run."""

    @functools.wraps(method)
    def guarded(self, *args, **kwargs):
        if self.events is None:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # pylint: disable=broad-except
            self.lost += 1
            self.warn(error)

    return guarded


def names_helpers(hosts):
    """Report whether the hosts of a play, as written in the playbook, name the group of the helpers."""
    for pattern in hosts if isinstance(hosts, (list, tuple)) else [hosts]:
        pattern = str(pattern)
        if "{{" in pattern and HELPERS in pattern:
            return True
        if any(re.match(r"&?%s(\[|$)" % HELPERS, part.strip()) for part in re.split("[:,]", pattern)):
            return True
    return False


class HelperLimit:
    """Admits the helpers to the plays that name them.

    The run begins with the limit job_targets. Each play gets its limit right
    before Ansible resolves its hosts: wider for a play that names the helpers,
    else the targets alone. So a helper is out of reach without this class, and
    an exception in it must end the run, because Ansible would continue.
    """

    def __init__(self):
        self.helpers = set()
        self.wide = set()  # plays that name the helpers

    def begin(self, plays):
        """Prepare the plays of the run."""
        inventory = plays[0].get_variable_manager()._inventory if plays else None
        if inventory is None or inventory._subset != [TARGETS] or HELPERS not in inventory.groups:
            return
        self.helpers = {host.get_name() for host in inventory.groups[HELPERS].get_hosts()}
        self.wide = {play._uuid for play in plays if names_helpers(play.hosts)}
        if self.wide:
            for play in plays:
                self.limit(inventory, play)

    def limit(self, inventory, play):
        """Let the play set its limit when Ansible completes its attributes, which precedes the look-up of hosts."""
        limit = TARGETS + ":" + HELPERS if play._uuid in self.wide else TARGETS
        complete = play.post_validate

        def post_validate(*args, **kwargs):
            inventory.subset(limit)
            return complete(*args, **kwargs)

        play.post_validate = post_validate

    def check(self, play):
        """Raise an exception if the play is about to act on a helper that it does not name."""
        if not self.helpers or play._uuid in self.wide:
            return
        names = play.get_variable_manager().get_vars(play=play)
        reached = self.helpers & {*(names.get("ansible_play_hosts_all") or ()), *(names.get("ansible_play_batch") or ())}
        if reached:
            raise RuntimeError(
                "the play %r would act on %s, and its hosts do not name %s"
                % (play.get_name(), ", ".join(sorted(reached)), HELPERS)
            )


def or_exit(method, *args):
    """Call the method, and end the whole process if it fails: Ansible only warns of an exception in a callback."""
    try:
        method(*args)
    except BaseException as error:  # pylint: disable=broad-except
        sys.stdout.flush()
        sys.stderr.write("clusterm ends the run, because it cannot limit its plays: %s\n" % error)
        sys.stderr.flush()
        os._exit(EXIT_LIMIT)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "clusterm_events"
    CALLBACK_NEEDS_ENABLED = True
    CALLBACK_NEEDS_WHITELIST = True  # the name before Ansible 2.11

    def __init__(self, display=None):
        super().__init__(display=display)
        self.helper_limit = HelperLimit()
        self.events = None  # file descriptor
        self.play = None
        self.started = {}  # (host, task): start time
        self.plays = []  # of the whole run
        self.batches = {}  # play: hosts on which it began
        self.batch = []  # hosts of the current batch of the current play
        self.abandoned = False  # Ansible has given up the current play
        self.warned = False
        self.diff_bytes = {}  # host: bytes of its differences so far
        self.judgements = {}  # host: Judgement
        self.lost = 0  # events
        self.names = CheckModeNames()
        self.raw = {}  # task: as the playbook has it, in a check
        self.facts = {}  # facts that depend on the check, as the playbook has them
        self.ends = {}  # task that ends the play because of the check: hosts for which it may
        path = os.environ.get("CLUSTERM_EVENTS")
        if path:
            try:
                self.events = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                self.warn(error)

    def warn(self, error):
        if not self.warned:
            self.warned = True
            self._display.warning("clusterm_events: an event is lost: %s" % error)

    def emit(self, event, **fields):
        record = {
            "time": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "event": event,
        }
        record.update((name, value) for name, value in fields.items() if value not in (None, "", False, [], {}))
        line = (json.dumps(record, ensure_ascii=False, default=str) + "\n").encode("utf-8", "replace")
        try:
            while line:
                line = line[os.write(self.events, line):]
        except OSError as error:  # for example, the FIFO has no reader any more
            self.warn(error)
            os.close(self.events)
            self.events = None

    def task_fields(self, task):
        role = getattr(task, "_role", None)
        return {
            "play": self.play.get_name() if self.play else "",
            "task": (task.name or task.action).strip(),
            "role": role.get_name() if role else "",
            "action": task.action,
        }

    def judgement(self, host):
        return self.judgements.setdefault(host, Judgement())

    def guarded(self, result, skipped=False):
        """Report whether the task was skipped, or its result changed, only because the run is a check."""
        task = self.raw.get(attribute(result, "task")._uuid)
        if task is None:
            return False
        if not skipped:
            return self.names.mentions(task.changed_when) or self.names.mentions(task.failed_when)
        if self.names.mentions(task.loop):
            return True
        return self.names.mentions(task.when) and self.would_run(task, attribute(result, "host"))

    def would_run(self, task, host):
        """Report whether the conditions of a task hold for a run that is no check, as far as they can be evaluated."""
        try:
            manager = self.play.get_variable_manager()
            values = manager.get_vars(play=self.play, host=host, task=task)
            values.update(self.facts)
            values[CHECK_MODE] = False
            return bool(task.evaluate_conditional(Templar(loader=manager._loader, variables=values), values))
        except Exception:  # pylint: disable=broad-except
            return True  # it uses the item of a loop, or a result that a check lacks

    def doubts(self, result, ignored, what):
        """Note a failure that the playbook ignores, or may rescue."""
        task, judgement = attribute(result, "task"), self.judgement(attribute(result, "host").get_name())
        headline = cause(result).split("\n", 1)[0]
        text = "task \"%s\" %s, which the playbook %s: %s" % (
            (task.name or task.action).strip(), what, "ignores" if ignored else "rescues", headline)
        if ignored:
            judgement.doubt = judgement.doubt or text
        else:
            judgement.failure = judgement.failure or text

    def unjudged_failure(self, result, ignored):
        """Report whether the playbook ignores the failure because the run is a check. Any other one is noted."""
        task = attribute(result, "task")
        if executed(task):
            return False  # it is what the playbook gets without a check, too
        raw = self.raw.get(task._uuid)
        if ignored and raw is not None and self.names.mentions(raw.ignore_errors):
            return True
        self.doubts(result, ignored, "failed")
        return False

    def report(self, event, result, **fields):
        host, task = attribute(result, "host").get_name(), attribute(result, "task")
        start = self.started.get((host, task._uuid))
        if start is not None:
            fields["seconds"] = round(time.monotonic() - start, 3)
        fields.update(unselected=unselected(task), executed=executed(task))
        if not fields.get("item"):
            judgement = self.judgement(host)
            judgement.add("foreseen", fields.get("foreseen"))
            judgement.add("unjudged", fields.get("unjudged"))
            judgement.add("executed", fields["executed"] and (fields.get("changed") or event == "failed"))
            judgement.add("judged", event == "ok" and not fields.get("unjudged") and judges(task))
        if fields.get("foreseen") or fields.get("unjudged") or fields["executed"] or event == "failed":
            fields["path"] = place(task)
        self.emit(event, host=host, **self.task_fields(task), **fields)

    def difference(self, result):
        """Return the differences that a check foresees, as far as the module reports them and the host has room."""
        values = attribute(result, "result")
        if is_hidden(result, values):
            return HIDDEN
        texts = []
        for part in values.get("results") or [values]:
            if not isinstance(part, dict) or not part.get("changed") or not part.get("diff"):
                continue
            hidden = "censored" in part or part.get("_ansible_no_log")
            texts.append(HIDDEN if hidden else self._get_diff(part["diff"]))
        host = attribute(result, "host").get_name()
        left = HOST_DIFF_BYTES - self.diff_bytes.get(host, 0)
        text = whole_lines("\n".join(str(t).rstrip("\n") for t in texts), min(DIFF_BYTES, left))
        self.diff_bytes[host] = self.diff_bytes.get(host, 0) + len(text.encode("utf-8", "replace"))
        return text

    # Callbacks of the run and its plays.

    def v2_playbook_on_start(self, playbook):
        # Before the workers, so that each has the plugin with the fence, by whatever name a play calls it.
        connection_loader.get("ssh", class_only=True)
        or_exit(self.helper_limit.begin, list(playbook.get_plays()))
        self.playbook_begins(playbook)

    def v2_playbook_on_play_start(self, play):
        or_exit(self.helper_limit.check, play)
        self.play_begins(play)

    @never_fails
    def playbook_begins(self, playbook):
        self.plays = list(playbook.get_plays())
        self.emit("playbook")

    @never_fails
    def play_begins(self, play):
        self.play = play
        self.started.clear()
        self.abandoned = False
        names = play.get_variable_manager().get_vars(play=play)
        every = names.get("ansible_play_hosts_all") or ()
        self.batch = [host for host in names.get("ansible_play_batch") or () if host in every]
        self.batches.setdefault(play._uuid, []).extend(self.batch)
        self.play_ended()
        if context.CLIARGS.get("check"):
            self.raw.clear()
            self.names.learn(names)
            manager = play.get_variable_manager()
            for host in self.batch:
                self.names.learn(manager.get_vars(play=play, host=manager._inventory.get_host(host)))
        self.emit("play", play=play.get_name(), hosts=self.batch)

    @never_fails
    def v2_playbook_on_no_hosts_remaining(self):
        self.abandoned = True

    def unfinished(self, bad):
        """Return the hosts that have not failed, but have not had all their plays, because the run stopped early.

        Ansible's counts do not distinguish them from hosts that are done. A run
        stops early when a play, or a serial batch of it, has lost all its hosts,
        and by any_errors_fatal and max_fail_percentage.
        """
        batch_failed = self.batch and all(host in bad for host in self.batch)
        if not self.abandoned and not batch_failed:
            return []
        missed = set(self.batch if self.abandoned else ())
        for play in self.plays:
            names = play.get_variable_manager().get_vars(play=play)
            missed.update(set(names.get("ansible_play_hosts_all") or ()) - set(self.batches.get(play._uuid, ())))
        return sorted(missed - set(bad))

    def task_begins(self, task):
        self.emit("task", **self.task_fields(task))
        if not context.CLIARGS.get("check"):
            return
        self.learn(task)
        if module(task) == "meta" and task.args.get("_raw_params") in ENDS and self.names.mentions(task.when):
            self.ends.setdefault(task._uuid, (task, set(self.batch)))

    def learn(self, task):
        """Remember a task as the playbook has it, and the variables that it makes depend on the check."""
        if task._uuid in self.raw:
            return
        self.raw[task._uuid] = task
        self.names.learn(task.get_vars())
        if module(task) == "set_fact":
            self.names.learn(task.args)
            self.facts.update((name, value) for name, value in task.args.items() if name in self.names.names)

    def play_ended(self):
        """Note the hosts whose play a task has ended because the run is a check."""
        for task, hosts in self.ends.values():
            for host in hosts:
                judgement = self.judgement(host)
                judgement.doubt = judgement.doubt or "a check skips what follows %s" % place(task)
        self.ends.clear()

    @never_fails
    def v2_playbook_on_task_start(self, task, is_conditional):
        self.task_begins(task)

    @never_fails
    def v2_playbook_on_handler_task_start(self, task):
        self.task_begins(task)

    @never_fails
    def v2_playbook_on_cleanup_task_start(self, task):
        self.task_begins(task)

    @never_fails
    def v2_playbook_on_stats(self, stats):
        self.play_ended()
        hosts = {}
        for host in stats.processed:
            counts = {name: count for name, count in stats.summarize(host).items() if count}
            hosts[host] = {**counts, **self.judgement(host).fields(counts)}
        bad = [host for host, counts in hosts.items() if counts.get("failures") or counts.get("unreachable")]
        self.emit("stats", stats=hosts, unfinished=self.unfinished(bad), lost=self.lost)

    # Callbacks of tasks on hosts.

    @never_fails
    def v2_runner_on_start(self, host, task):
        self.started[(host.get_name(), task._uuid)] = time.monotonic()
        if context.CLIARGS.get("check"):
            self.learn(task)

    @never_fails
    def v2_runner_on_ok(self, result):
        task, values = attribute(result, "task"), attribute(result, "result")
        would = foreseen(task, values)
        if module(task) == "include_vars" and task._uuid in self.raw:
            self.names.learn(values.get("ansible_facts") or {})
        self.report(
            "ok",
            result,
            changed=bool(values.get("changed")),
            foreseen=would,
            unjudged=unjudged(task, values) or self.guarded(result),
            diff=self.difference(result) if would else "",
        )

    @never_fails
    def v2_runner_on_skipped(self, result):
        task, values = attribute(result, "task"), attribute(result, "result")
        if task._uuid in self.ends:  # the play goes on, for this host or for all
            hosts = self.ends[task._uuid][1]
            hosts -= {attribute(result, "host").get_name()} if task.args.get("_raw_params") == "end_host" else set(hosts)
        self.report("skipped", result, unjudged=unjudged(task, values, True) or self.guarded(result, True))

    @never_fails
    def v2_runner_on_failed(self, result, ignore_errors=False):
        task, values = attribute(result, "task"), attribute(result, "result")
        would = bool(values.get("results")) and foreseen(task, values)
        self.report(
            "failed",
            result,
            changed=bool(values.get("changed")),
            ignored=bool(ignore_errors),
            foreseen=would,
            unjudged=self.unjudged_failure(result, bool(ignore_errors)),
            diff=self.difference(result) if would else "",
            message=cause(result),
        )

    @never_fails
    def v2_runner_on_unreachable(self, result):
        ignored = bool(getattr(attribute(result, "task"), "ignore_unreachable", False))
        if ignored:
            self.doubts(result, True, "did not reach its host")
        self.report("unreachable", result, ignored=ignored, message=cause(result))

    @never_fails
    def v2_runner_item_on_failed(self, result):
        values = attribute(result, "result")
        hidden = is_hidden(result, values)
        item = values.get("_ansible_item_label", values.get("item", ""))
        if not isinstance(item, str):
            item = json.dumps(item, ensure_ascii=False, default=str)
        self.report(
            "failed",
            result,
            ignored=bool(attribute(result, "task").ignore_errors),
            item="" if hidden else shorten(item, ITEM_BYTES),
            message=cause(result),
        )

    @never_fails
    def v2_runner_retry(self, result):
        values = attribute(result, "result")
        message = "attempt %s of %s" % (values.get("attempts", "?"), values.get("retries", "?"))
        self.report("retry", result, message=shorten(message + ": " + cause(result), MESSAGE_BYTES))
