# SPDX-License-Identifier: Apache-2.0
"""The connection ssh of Ansible, with a fence on the host: a later run ends an earlier one there, and locks it out."""

import importlib.util
import os
import re
import shlex
import sys

import yaml
from ansible.errors import AnsibleError
from ansible.plugins import connection


def load_builtin():
    """Load the plugin of Ansible under a name of its own: this one has its name."""
    path = os.path.join(os.path.dirname(connection.__file__), "ssh.py")
    spec = importlib.util.spec_from_file_location("ansible.plugins.connection.clusterm_builtin_ssh", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builtin = load_builtin()

# The full name of the plugin of Ansible leads here as well, once this one is loaded.
if __name__ in sys.modules:
    sys.modules.setdefault("ansible_collections.ansible.builtin.plugins.connection.ssh", sys.modules[__name__])

OPTIONS = """
fence_token:
    description:
      - EPOCH.REVISION.RUN of the run. The host keeps the highest token that it has seen, and refuses commands with a
        lower one. A higher one first ends whatever still runs with a lower one. Without a token there is no fence.
    ini:
      - section: clusterm_fence
        key: token
fence_manager:
    description: identity of the manager; the token of another manager has no order
    ini:
      - section: clusterm_fence
        key: manager
fence_job:
    description: number of the job
    ini:
      - section: clusterm_fence
        key: job
fence_claim:
    description: whether the run takes hosts over from other managers
    type: bool
    default: false
    ini:
      - section: clusterm_fence
        key: claim
fence_held:
    description:
      - Whether the job holds the host. Other hosts, where tasks are delegated, may serve several jobs at a time. There
        a token only counts against those of the same job.
    type: bool
    default: false
    vars:
      - name: clusterm_held
"""


def document(text):
    """Add the options of the fence to a documentation."""
    doc = yaml.safe_load(text)
    doc["options"].update(yaml.safe_load(OPTIONS))
    return yaml.safe_dump(doc)


DOCUMENTATION = document(builtin.DOCUMENTATION)

REFUSED = 119  # exit status of fence.sh
REASON = re.compile(r"clusterm-fence: ([^\r\n]*)")
WORD = re.compile(r"[0-9A-Za-z.-]{1,64}\Z")
TOKEN = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,9}\Z")
NO_SERVER = "clusterm-no-sftp-server"
SERVER = (
    "for s in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/lib;"
    " do if [ -x $s/sftp-server ]; then exec $s/sftp-server; fi; done; echo %s >&2; exit 127" % NO_SERVER
)


def script():
    """Return fence.sh without comments, because it goes with each command."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fence.sh"), encoding="utf-8") as file:
        lines = (line.strip() for line in file)
        return "\n".join(line for line in lines if line and not line.startswith("#"))


class Connection(builtin.Connection):
    script = script()

    def mark(self):
        """Return what marks the processes of the run, or None without a fence."""
        token = self.get_option("fence_token")
        # Windows has neither sh nor processes that could be marked.
        if not token or getattr(self._shell, "_IS_WINDOWS", False):
            return None
        manager, job = self.get_option("fence_manager") or "-", self.get_option("fence_job") or "-"
        if not (TOKEN.match(token) and WORD.match(manager) and WORD.match(job)):
            raise AnsibleError("the settings of the fence are not in order: %s %s %s" % (token, manager, job))
        scope = "host" if self.get_option("fence_held") else "job-" + job
        return "/".join([manager, scope, token.replace(".", "/"), job])

    def fenced(self, cmd, drain=False):
        """Return the command line that runs cmd behind the fence, if there is one."""
        mark = self.mark()
        if mark is None:
            return cmd
        # sudo clears the environment, and a task with async leaves the tree of processes.
        marker = getattr(self.become, "success", None)
        if marker:
            begun = "echo %s ;" % marker
            cmd = cmd.replace(begun, begun + " export CLUSTERM_FENCE=%s CLUSTERM_FENCED=1 ;" % mark)
        claim = "claim" if self.get_option("fence_claim") else "keep"
        sudo = "sudo" if getattr(self.become, "name", None) == "sudo" else "plain"
        words = [
            "/usr/bin/env", "CLUSTERM_FENCE=" + mark, "/bin/sh", "-c", 'eval "$0"', self.script,
            "run", claim, sudo, "drain" if drain else "keep", cmd,
        ]
        return " ".join(shlex.quote(word) for word in words)

    def check(self, *texts):
        """Raise the refusal of the fence, if there is one in the texts."""
        for text in texts:
            if isinstance(text, bytes):
                text = text.decode("utf-8", "replace")
            found = REASON.search(text)
            if found:
                raise AnsibleError("%s refuses this run: %s" % (self.host, found.group(1)))

    def exec_command(self, cmd, in_data=None, sudoable=True):
        fenced = self.fenced(cmd, bool(in_data))
        status, out, err = super().exec_command(fenced, in_data=in_data, sudoable=sudoable)
        if status == REFUSED and self.mark():
            # With a terminal, errors are in the output.
            self.check(err, out)
        return status, out, err

    def _build_command(self, binary, subsystem, *other_args):
        # The server of sftp runs behind the fence as well.
        if subsystem == "sftp" and self.mark():
            other_args = ("-s", self.fenced("/bin/sh -c " + shlex.quote(SERVER)), *other_args)
        return super()._build_command(binary, subsystem, *other_args)

    def _file_transport_command(self, in_path, out_path, sftp_action):
        if not self.mark():
            return super()._file_transport_command(in_path, out_path, sftp_action)

        # scp would run a command of its own.
        if self.get_option("ssh_transfer_method") != "piped":
            self.set_option("ssh_transfer_method", "sftp")
            try:
                return super()._file_transport_command(in_path, out_path, sftp_action)
            except AnsibleError as error:
                self.check(str(error))
                if NO_SERVER not in str(error):
                    raise
        return self.pipe(in_path, out_path, sftp_action)

    def pipe(self, in_path, out_path, action):
        """Copy a file through cat, for hosts without a server of sftp."""
        if action == "get":
            result = self.exec_command("cat < %s" % shlex.quote(in_path), sudoable=False)
            with open(out_path, "wb") as file:
                file.write(result[1])
        else:
            with open(in_path, "rb") as file:
                data = file.read()
            result = self.exec_command(
                ("cat > %s" if data else ": > %s") % shlex.quote(out_path), in_data=data or None, sudoable=False)
        if result[0] != 0:
            why = result[2].decode("utf-8", "replace")
            raise AnsibleError("failed to transfer %s to %s: %s" % (in_path, out_path, why))
        return result
