# SPDX-License-Identifier: Apache-2.0
"""Unit tests of the plugins. plugins_test.go runs them with the folder of the playbooks as argument."""

import importlib.util
import json
import os
import sys
import tempfile
import types
import unittest

ROOT = sys.argv.pop(1)


def load(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], os.path.join(ROOT, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


events = load("plugins/callback/clusterm_events.py")
facts = load("plugins/cache/clusterm_facts.py")
etcd = load("roles/etcd/filter_plugins/etcd.py")
agent = load("roles/agent/filter_plugins/agent.py")


def result(no_log=False, **values):
    return types.SimpleNamespace(_result=values, _task=types.SimpleNamespace(no_log=no_log))


class Owner(unittest.TestCase):
    ME = {"id": "00000000000000aa", "name": "host1-1", "addr": "10.0.0.1"}
    OURS = 'agent={"id": "00000000000000aa", "name": "host1-1", "addr": "10.0.0.1"}'
    THEIRS = 'agent={"id": "00000000000000bb", "name": "host9-1", "addr": "10.0.0.9"}'
    # The digest of the key "secret".
    KEY = "key=2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"

    def owner(self, *lines):
        found = agent.agent_owner(list(lines), self.ME, "secret\n")
        return found["kind"], found["text"]

    def kind(self, *lines):
        return self.owner(*lines)[0]

    def test_kinds(self):
        idle = ("active=inactive", "enabled=disabled")
        for want, lines in (
            ("none", ()),
            ("none", ("active=inactive", "enabled=")),
            ("own", (*idle, self.OURS)),
            ("own", (*idle, self.KEY, "joins=[10.0.0.1:7946]")),
            # The identity of the store outlives a change of the gossip key.
            ("own", (*idle, self.OURS, "key=00")),
            ("foreign", (*idle, self.THEIRS)),
            ("foreign", (*idle, self.THEIRS, self.KEY)),
            ("foreign", (*idle, "key=00")),
            ("foreign", (*idle, "joins=[10.0.0.9:7946]")),
            ("foreign", (*idle, "agent=", self.KEY)),
            ("foreign", (*idle, "agent=[]")),
            ("foreign", (*idle, 'agent={"id": "{{ 1 }}"}')),
            ("manager", ("active=active", "enabled=disabled")),
            ("manager", ("active=activating", "enabled=enabled")),
            ("manager", ("active=inactive", "enabled=enabled")),
            ("manager", ("active=inactive", "enabled=enabled-runtime", self.OURS)),
            ("manager", (*idle, "data=/var/lib/clusterm")),
            ("manager", (*idle, "data=/var/lib/clusterm", self.THEIRS)),
            ("own", (*idle, "data=/var/lib/clusterm", self.OURS)),
            ("self", ("active=active", self.OURS.replace("agent", "manager"))),
            ("manager", ("active=inactive", "enabled=enabled", self.OURS.replace("agent", "manager"))),
        ):
            self.assertEqual(self.kind(*lines), want, lines)

    def test_the_owner_is_named(self):
        self.assertEqual(
            self.owner(self.THEIRS)[1], "its agent belongs to the manager host9-1 at 10.0.0.9 (id 00000000000000bb)"
        )
        self.assertEqual(
            self.owner(self.OURS.replace("aa", "cc"))[1],
            "its agent belongs to the manager host1-1 at 10.0.0.1 (id 00000000000000cc), "
            "which is this manager before its store was lost: take the host over",
        )
        self.assertIn("joins 10.0.0.9:7946, fd00::9", self.owner("key=00", 'joins=["10.0.0.9:7946", "[fd00::9]:7946"]')[1])
        text = self.owner("active=active", "enabled=enabled", self.THEIRS.replace("agent", "manager"))[1]
        self.assertIn("host9-1", text)
        self.assertIn("clusterm.service runs", text)

    def test_hostile_values_stay_out(self):
        for line in (
            'agent={"id": "00000000000000bb", "name": "{{ lookup(1) }}", "addr": "\\u001b[2J"}',
            "joins=[{{ lookup(1) }}]",
            'agent={"id": "00000000000000bb\\n", "name": {"a": 1}}',
        ):
            self.assertRegex(self.owner(line)[1], r"\A[A-Za-z0-9 .,:()-]*\Z", line)


class Facts(unittest.TestCase):
    def test_reserved_names_are_refused(self):
        kept, refused = facts.without_reserved(
            {"node_name": "evil", "clusterm_taken": {}, "ansible_os": "x", "ntp": "evil"}, {"node_name", "ntp"}
        )
        self.assertEqual(kept, {"ansible_os": "x"})
        self.assertEqual(refused, ["clusterm_taken", "node_name", "ntp"])


class Hostile(unittest.TestCase):
    def test_addresses_are_checked(self):
        self.assertEqual(etcd.etcd_url("fd00::1", 2379), "http://[fd00::1]:2379")
        for addr in ("10.0.0.1 evil", "10.0.0.1\nevil", "a,b", ""):
            with self.assertRaises(ValueError):
                etcd.etcd_url(addr, 2379)

    def test_members_are_checked(self):
        for name, url in (("a b", "http://10.0.0.1:2380"), ("a", "http://10.0.0.1:2380,b=http://x"), ("a\n", "http://a")):
            with self.assertRaises(ValueError):
                etcd.etcd_members(json.dumps({"members": [{"ID": 1, "name": name, "peerURLs": [url]}]}))


class Cause(unittest.TestCase):
    def test_command(self):
        text = events.cause(result(msg="non-zero return code", rc=3, stderr="err", stdout="out", cmd="hunter2"))
        self.assertEqual(text, "err\nnon-zero return code\nrc=3\nstdout: out")

    def test_the_end_of_the_output_is_first(self):
        text = events.cause(result(msg="non-zero return code", rc=1, stderr="context\nE: no package etcd\n\n"))
        self.assertEqual(text, "context / E: no package etcd\nnon-zero return code\nrc=1")
        text = events.cause(result(msg="non-zero return code", rc=1, stderr="one\ntwo\n---\nthree\n\nfour\n^^^^"))
        self.assertEqual(text.split("\n")[0], "two / three / four")
        self.assertIn("stderr: one\ntwo", text)
        text = events.cause(result(msg="non-zero return code", rc=1, stderr="x" * 300 + "\n" + "y" * 200))
        self.assertEqual(text.split("\n")[0], "y" * 200)

        text = events.cause(result(msg="MODULE FAILURE\nSee stdout/stderr", rc=1, module_stdout="ImportError: x"))
        self.assertTrue(text.startswith("ImportError: x\nMODULE FAILURE"), text)
        self.assertEqual(events.cause(result(msg="non-zero return code", rc=2)), "non-zero return code\nrc=2")

    def test_current_ansible(self):
        modern = types.SimpleNamespace(result={"msg": "new"}, task=types.SimpleNamespace(no_log=False))
        self.assertEqual(events.cause(modern), "new")

    def test_no_message(self):
        self.assertEqual(events.cause(result()), "failed without a message")

    def test_loop_reports_its_first_failure(self):
        items = [{"msg": "fine"}, {"failed": True, "msg": "not fine"}]
        self.assertEqual(events.cause(result(msg="One or more items failed", results=items)), "not fine")

    def test_hidden(self):
        for hidden in (
            result(no_log=True, msg="hunter2"),
            result(_ansible_no_log=True, msg="hunter2"),
            result(censored="the output has been hidden"),
            result(msg="x", results=[{"failed": True, "censored": "hidden", "msg": "hunter2"}]),
        ):
            self.assertEqual(events.cause(hidden), "the result is hidden by no_log")

    def test_long_is_cut(self):
        text = events.cause(result(msg="é" * 5000))
        self.assertLessEqual(len(text.encode()), 4096)
        self.assertTrue(text.endswith("é…"))

    def test_output_keeps_its_end(self):
        text = events.cause(result(msg="m", stderr="\n".join(str(n) for n in range(1000))))
        self.assertTrue(text.startswith("m\nstderr: …980\n"), text[:40])
        self.assertTrue(text.endswith("\n999"))
        self.assertLessEqual(len(events.cause(result(msg="m", stdout="é" * 9999)).encode()), 4096)

    def test_invalid_unicode(self):
        self.assertEqual(events.cause(result(msg="a\udcffb")), "a?b")


class Check(unittest.TestCase):
    def task(self, check_mode=True, no_log=False):
        return types.SimpleNamespace(check_mode=check_mode, no_log=no_log, get_path=lambda: os.getcwd() + "/site.yml:7")

    def setUp(self):
        self.arguments, events.context.CLIARGS = events.context.CLIARGS, {"check": True}

    def tearDown(self):
        events.context.CLIARGS = self.arguments

    def test_foreseen(self):
        self.assertTrue(events.foreseen(self.task(), {"changed": True}))
        self.assertFalse(events.foreseen(self.task(), {}))
        self.assertFalse(events.foreseen(self.task(check_mode=False), {"changed": True}))
        items = [{"failed": True, "changed": True}, {"changed": True}]
        self.assertTrue(events.foreseen(self.task(), {"results": items}))
        self.assertFalse(events.foreseen(self.task(), {"results": items[:1]}))

    def test_unjudged(self):
        for want, values in (
            (True, {"msg": "Command would have run if not in check mode"}),
            (True, {"msg": "remote module (x) does not support check mode"}),
            (True, {"results": [{"skipped": True, "skip_reason": "x"}, {"skipped": True}]}),
            (True, {"censored": "hidden"}),
            (False, {"skip_reason": "Conditional result was False"}),
            (False, {"skipped_reason": "No items in the list", "results": []}),
            (False, {"msg": "/x exists, matching creates option"}),
            (False, {"results": [{"skipped": True, "false_condition": "x"}]}),
        ):
            self.assertEqual(events.unjudged(self.task(), values, True), want, values)
        self.assertTrue(events.unjudged(self.task(), {"results": [{"changed": True}, {"skipped": True}]}))
        self.assertFalse(events.unjudged(self.task(), {"results": [{"changed": True}]}))
        self.assertFalse(events.unjudged(self.task(), {"censored": "hidden"}))
        self.assertFalse(events.unjudged(self.task(check_mode=False), {}, True))

    def test_judges(self):
        for check, action, want in (
            (True, "ansible.builtin.copy", True),
            (True, "community.general.ini_file", True),
            (True, "assert", False),
            (False, "ansible.legacy.assert", True),
            (False, "command", True),
            (False, "set_fact", False),
            (False, "ansible.builtin.service_facts", False),
            (False, "x.y.thing_info", False),
        ):
            events.context.CLIARGS = {"check": check}
            task = self.task()
            task.action = action
            self.assertEqual(events.judges(task), want, action)
        events.context.CLIARGS = {"check": True}
        task.action, task.check_mode = "copy", False
        self.assertFalse(events.judges(task))

    def test_names(self):
        names = events.CheckModeNames()
        names.learn({"c": "{{ b }}", "a": "{{ not ansible_check_mode }}", "b": ["{{ a | bool }}"], "d": "a", "groups": "{{ a }}"})
        self.assertEqual(names.names, {"ansible_check_mode", "a", "b", "c"})
        self.assertTrue(names.mentions(["x == 1", "c and y"]))
        self.assertFalse(names.mentions(["cc", 1, None, True]))

    def test_lost_events_are_counted(self):
        plugin = events.CallbackModule()
        plugin.events, plugin._display = 1, types.SimpleNamespace(warning=lambda text: None)
        plugin.v2_runner_on_ok(None)
        self.assertEqual(plugin.lost, 1)

    def test_lines_are_whole(self):
        self.assertEqual(events.whole_lines("a\n\x1b[31m-b\x1b[0m\n", 100), "a\n-b")
        self.assertEqual(events.whole_lines("aa\nbb\ncc", 6), "aa\nbb\n…")
        self.assertEqual(events.whole_lines("+" + "x" * 2000, 100), "+(a line of 2001 characters)")

    def test_place(self):
        self.assertEqual(events.place(self.task()), "site.yml:7")
        self.assertEqual(
            events.place(types.SimpleNamespace(get_path=lambda: "/elsewhere/roles/etcd/tasks/main.yml:3")),
            "roles/etcd/tasks/main.yml:3",
        )
        self.assertEqual(events.place(types.SimpleNamespace(get_path=lambda: None)), "")

    def difference(self, plugin, no_log=False, **values):
        return plugin.difference(
            types.SimpleNamespace(
                result=values, task=self.task(no_log=no_log), host=types.SimpleNamespace(get_name=lambda: "a")
            )
        )

    def test_difference(self):
        plugin = events.CallbackModule()
        diff = {"before": "one\ntwo\n", "after": "one\n2\n", "before_header": "/etc/a"}
        text = self.difference(plugin, changed=True, diff=[diff])
        self.assertIn("--- before: /etc/a", text)
        self.assertIn("\n-two\n+2", text)
        items = [{"changed": True, "diff": diff}, {"changed": False, "diff": diff}, {"changed": True, "censored": "x"}]
        self.assertEqual(self.difference(plugin, changed=True, results=items), text)
        items[0]["_ansible_no_log"] = True
        self.assertEqual(self.difference(plugin, changed=True, results=items), events.HIDDEN)
        self.assertEqual(self.difference(plugin, no_log=True, changed=True, diff=[diff]), events.HIDDEN)
        self.assertEqual(self.difference(plugin, changed=True), "")

    def test_the_differences_of_a_host_are_bounded(self):
        plugin = events.CallbackModule()
        diff = {"before": "", "after": "a line\n" * 10000}
        sizes = [len(self.difference(plugin, changed=True, diff=[diff]).encode()) for _ in range(20)]
        self.assertLessEqual(max(sizes), events.DIFF_BYTES + 16)
        self.assertLessEqual(sum(sizes), events.HOST_DIFF_BYTES + 20 * 16)
        self.assertGreater(sum(sizes), events.HOST_DIFF_BYTES // 2)


class File(unittest.TestCase):
    def plugin(self, path):
        os.environ["CLUSTERM_EVENTS"] = path
        plugin = events.CallbackModule()
        plugin.warnings = []
        plugin._display = types.SimpleNamespace(warning=plugin.warnings.append)
        return plugin

    def test_appends_one_line_per_event(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events")
            with open(path, "w", encoding="utf-8") as file:
                file.write("before\n")
            plugin = self.plugin(path)
            plugin.emit("ok", host="a", message="line\nline", changed=False, item="", seconds=0)
            os.close(plugin.events)
            with open(path, encoding="utf-8") as file:
                before, line = file.read().splitlines()
            event = json.loads(line)
            self.assertEqual(before, "before")
            self.assertRegex(event.pop("time"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertEqual(event, {"event": "ok", "host": "a", "message": "line\nline"})

    def test_fifo_without_a_reader(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "fifo")
            os.mkfifo(path)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            plugin = self.plugin(path)
            os.close(reader)
            plugin.emit("ok", host="a")
            self.assertIsNone(plugin.events)
            self.assertEqual(len(plugin.warnings), 1)
            plugin.v2_playbook_on_stats(None)  # without events, an error has no effect

    def test_no_file(self):
        plugin = self.plugin("/nonexistent/events")
        self.assertIsNone(plugin.events)
        plugin.v2_runner_on_ok(None)

    def test_exceptions_become_one_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            plugin = self.plugin(os.path.join(folder, "events"))
            plugin.v2_runner_on_ok(None)
            plugin.v2_runner_on_ok(None)
            os.close(plugin.events)
            self.assertEqual(len(plugin.warnings), 1)


class Etcd(unittest.TestCase):
    LIST = json.dumps({"members": [
        {
            "ID": 10276657743932975437,
            "name": "m-1",
            "peerURLs": ["http://10.0.0.1:2380"],
            "clientURLs": ["http://10.0.0.1:2379"],
        },
        {"ID": 255, "peerURLs": ["http://[fd00::2]:2380"], "isLearner": True},
    ]})

    def test_members(self):
        one, two = etcd.etcd_members(self.LIST)
        self.assertEqual((one["id"], one["name"], one["learner"]), ("8e9e05c52164694d", "m-1", False))
        self.assertEqual((two["id"], two["name"], two["learner"], two["client_urls"]), ("ff", "", True, []))

    def test_select(self):
        members = etcd.etcd_members(self.LIST)
        by_url = etcd.etcd_select(members, ["m-2"], [etcd.etcd_url("fd00::2", 2380)])
        self.assertEqual([m["id"] for m in by_url], ["ff"])
        self.assertEqual([m["name"] for m in etcd.etcd_select(members, ["m-1"], [])], ["m-1"])
        self.assertEqual([m["id"] for m in etcd.etcd_select(members, ["m-1"], [], False)], ["ff"])

    def test_addresses(self):
        self.assertEqual(etcd.etcd_url("10.0.0.1", 2379), "http://10.0.0.1:2379")
        self.assertEqual(etcd.etcd_url("fd00::1", 2379), "http://[fd00::1]:2379")

    def test_error(self):
        self.assertEqual(etcd.etcd_error('{"level":"warn"}\nError: unhealthy cluster\n'), "Error: unhealthy cluster")
        self.assertEqual(etcd.etcd_error('{"level":"warn"}'), '{"level":"warn"}')


if __name__ == "__main__":
    unittest.main()
