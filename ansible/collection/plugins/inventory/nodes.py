# SPDX-License-Identifier: Apache-2.0
"""The nodes of clusterm as an inventory of Ansible."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes
short_description: the nodes of clusterm
description:
  - Reads the nodes of a cluster manager, with their groups, connections and variables.
  - Text from the API is never a template. Variables of the manager's configuration file may be templates.
  - Secrets of the manager are left out.
  - The name of the file has to end with C(clusterm_inventory.yml) or C(clusterm_inventory.yaml).
author: The cluster manager's maintainers
extends_documentation_fragment: constructed
options:
  plugin:
    description: The name of this plugin.
    required: true
    choices: [contiv.clusterm.nodes]
  url:
    description: >-
      The manager, as C(https://HOST:PORT), C(http://HOST:PORT) or C(unix:///PATH). Of the instances of a manager,
      separated by commas, the first that answers counts.
    default: unix:///run/clusterm/clusterm.sock
    env: [{name: CLUSTERM_URL}]
  token_file:
    description: >-
      A file with a token for the manager. Without it, the variable C(CLUSTERCTL_TOKEN) of the environment is the
      token; root on the socket needs none.
    type: path
  ca_fingerprint:
    description: >-
      The fingerprint of the CA of the manager, as C(clusterm ca fingerprint) prints it; those of its instances,
      separated by commas. It needs Python 3.10.
  ca_file:
    description: A file with the CAs of the manager in PEM. Without both, the CAs of this host count.
    type: path
  selector:
    description: A selector over fields and labels, such as C(status=Allocated,rack in (r1,r2)).
    default: ''
  node_groups:
    description: Only nodes of these groups of the manager. Empty means all nodes.
    type: list
    elements: str
    default: []
  known_hosts:
    description: >-
      The file for the recorded ssh host keys, relative to the inventory file. Other lines in it stay. Empty means that
      ssh uses its own files.
    default: .clusterm_known_hosts
  timeout:
    description: The limit for the connection and for each read, in seconds.
    type: int
    default: 30
"""

EXAMPLES = r"""
# On the host of the manager, as root.
plugin: contiv.clusterm.nodes

# Elsewhere: nodes in service, with a group for each rack.
# plugin: contiv.clusterm.nodes
# url: https://manager.example.org:9443
# ca_fingerprint: sha256:2f1c…
# token_file: ~/.config/clusterm.token
# selector: status=Allocated
# keyed_groups:
#   - {key: node_labels.rack, prefix: rack}
# compose:
#   ansible_ssh_private_key_file: "'~/.ssh/id_ed25519'"
"""

import contextlib  # noqa: E402
import fcntl  # noqa: E402
import hashlib  # noqa: E402
import http.client  # noqa: E402
import ipaddress  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402
import tempfile  # noqa: E402
from urllib.parse import urlencode, urlsplit  # noqa: E402

from ansible.errors import AnsibleParserError  # noqa: E402
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable  # noqa: E402
from ansible.utils.unsafe_proxy import wrap_var  # noqa: E402

try:  # ansible-core 2.19 evaluates no template that is not marked
    from ansible.template import trust_as_template
except ImportError:

    def trust_as_template(text):
        return text


SSH_ARGS = "ansible_ssh_common_args"


class Unreachable(AnsibleParserError):
    """No answer of the manager."""


def fail(message, remedy="", kind=AnsibleParserError):
    raise kind(message + (": " + remedy if remedy else ""))


def listed(text):
    """The parts of a text that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def trusted(value):
    """A value with all text in it trusted as template."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [trusted(v) for v in value]
    if isinstance(value, dict):
        return {k: trusted(v) for k, v in value.items()}
    return value


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def der(data, at):
    """The tag, the start and the end of the content of the DER element at an offset."""
    tag, length, at = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
    if at + length > len(data):
        raise ValueError("truncated DER")
    return tag, at, at + length


def fingerprint(certificate):
    """The SHA-256 of the public key of a certificate in DER."""
    _, at, _ = der(certificate, 0)
    _, at, _ = der(certificate, at)
    tag, _, end = der(certificate, at)
    if tag == 0xA0:  # the version, which may be absent
        at = end
    for _ in range(5):  # serial number, algorithm, issuer, validity, subject
        _, _, at = der(certificate, at)
    _, _, end = der(certificate, at)
    return hashlib.sha256(certificate[at:end]).hexdigest()


def presented(sock):
    """The certificates of the other end, in DER."""
    if hasattr(sock, "get_unverified_chain"):
        return list(sock.get_unverified_chain() or [])
    try:
        chain = sock._sslobj.get_unverified_chain()
        return [ssl.PEM_cert_to_DER_cert(c.public_bytes()) for c in chain or []]
    except AttributeError:
        fail("ca_fingerprint needs Python 3.10 or later", "use ca_file instead")


def pinned_ca(host, port, pin, timeout):
    """The certificate with one of the pinned keys that the manager presents. Nothing is sent."""
    wanted = [re.sub(r"^sha256:", "", part.lower()).replace(":", "") for part in listed(pin)]
    if not all(re.fullmatch(r"[0-9a-f]{64}", digits) for digits in wanted):
        fail("%r is not a fingerprint" % pin, "write the output of `clusterm ca fingerprint` into ca_fingerprint")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the second connection verifies
    with socket.create_connection((host, port), timeout) as raw:
        with context.wrap_socket(raw, server_hostname=host) as sock:
            for certificate in presented(sock):
                if fingerprint(certificate) in wanted:
                    return certificate
    fail(
        "https://%s:%s has another CA than the pinned one; the connection may be intercepted, and nothing was sent"
        % (host, port),
        "compare ca_fingerprint with the output of `clusterm ca fingerprint` on the manager's host",
    )


def has_loopback(host):
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Manager:
    """The API of a manager."""

    def __init__(self, url, token, pin, ca_file, timeout):
        self.url, self.token, self.pin, self.ca_file, self.timeout = url, token, pin, ca_file, timeout

    def connection(self):
        try:
            url = urlsplit(self.url)
            host, port = url.hostname, url.port
        except ValueError as e:
            fail("the url %r is malformed: %s" % (self.url, e))

        if url.scheme == "unix" and url.path.startswith("/") and not url.netloc:
            return UnixConnection(url.path, self.timeout)

        if url.scheme not in ("http", "https") or not host or url.path.strip("/") or url.query:
            fail(
                "the url %r is not one of a manager" % self.url,
                "write https://HOST:PORT, http://HOST:PORT or unix:///PATH",
            )

        if url.scheme == "http":
            if self.token and not has_loopback(host):
                fail("a token is not sent to %s: plain HTTP is not protected" % self.url, "use https://")
            return http.client.HTTPConnection(host, port, timeout=self.timeout)

        return http.client.HTTPSConnection(
            host, port, timeout=self.timeout, context=self.context(host, port or 443)
        )

    def context(self, host, port):
        if not self.pin:
            try:
                context = ssl.create_default_context(cafile=self.ca_file)
            except OSError as e:
                fail("cannot read the CAs in %s: %s" % (self.ca_file, e), "write PEM to it")
        else:
            context = ssl.create_default_context(cadata=pinned_ca(host, port, self.pin, self.timeout))
            # The pinned CA may be signed by another one.
            context.verify_flags |= 0x80000  # X509_V_FLAG_PARTIAL_CHAIN
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def hosts(self, selector, groups):
        """The hosts of GET /v1/inventory."""
        query = [("group", g) for g in groups] + ([("selector", selector)] if selector else [])
        headers = {"Accept": "application/json", "User-Agent": "contiv.clusterm"}
        if self.token:
            headers["Authorization"] = "Bearer " + self.token

        try:
            with contextlib.closing(self.connection()) as c:
                c.request("GET", "/v1/inventory" + ("?" + urlencode(query) if query else ""), headers=headers)
                answer = c.getresponse()
                status, body = answer.status, answer.read()
        except ssl.SSLCertVerificationError as e:
            fail(
                "the certificate of %s is not valid: %s" % (self.url, e.verify_message),
                "set ca_fingerprint or ca_file",
            )
        except (OSError, http.client.HTTPException) as e:
            fail(
                "cannot reach clusterm at %s: %s" % (self.url, e or type(e).__name__),
                "check the url, and `systemctl status clusterm` on the manager's host",
                Unreachable,
            )

        return self.decode(status, body)

    def decode(self, status, body):
        try:
            answer = json.loads(body)
            if status == 200:
                hosts = answer["items"]
                # Checked here, so that a foreign answer is one clear error.
                return [(str(h["name"]), h.get("group", ""), dict(h["vars"]), h) for h in hosts]
            detail, remedy = str(answer["detail"]), str(answer.get("remedy", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            fail("%s answers with status %d, and not as clusterm does" % (self.url, status), "check the url")
        fail("clusterm refuses the request: " + detail, remedy)


def merged_keys(text, keys):
    """The lines of a known_hosts file with the keys of the hosts in place of their old ones."""
    lines = [s for s in text.splitlines() if s.split(" ", 1)[0].lower() not in keys]
    for name, (spelled, own) in keys.items():
        lines += ["%s %s" % (spelled, key) for key in own]
    return "".join(s + "\n" for s in lines)


def write_known_hosts(path, keys):
    """Writes keys by host, in lower case, with the name as spelled. It keeps all other lines."""
    with open(path + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as f:
                old = f.read()
        except FileNotFoundError:
            old = None

        text = merged_keys(old or "", keys)
        if text == old:
            return

        fd, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".clusterm_")
        try:
            with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as f:
                f.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise


class InventoryModule(BaseInventoryPlugin, Constructable):
    NAME = "contiv.clusterm.nodes"

    def verify_file(self, path):
        return super().verify_file(path) and path.endswith(("clusterm_inventory.yml", "clusterm_inventory.yaml"))

    def read_hosts(self):
        """The hosts, from the first instance that answers."""
        down = []
        for url in listed(self.get_option("url")) or [""]:
            manager = Manager(
                url,
                self.read_token(),
                self.get_option("ca_fingerprint"),
                self.get_option("ca_file"),
                self.get_option("timeout"),
            )
            try:
                return manager.hosts(self.get_option("selector"), self.get_option("node_groups"))
            except Unreachable as e:
                down.append(str(e))
        raise Unreachable("; ".join(down))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)

        hosts = self.read_hosts()
        known_hosts = self.known_hosts(path, hosts)

        for name, group, variables, host in hosts:
            if known_hosts:
                variables[SSH_ARGS] = "%s %s" % (variables.get(SSH_ARGS, ""), known_hosts)
                variables["ansible_host_key_checking"] = True
            self.add(name, group, variables, host.get("templates") or {})

    def read_token(self):
        path = self.get_option("token_file")
        if not path:
            return os.environ.get("CLUSTERCTL_TOKEN", "")
        try:
            with open(path, encoding="ascii") as f:
                token = f.read(4096).strip()
        except (OSError, UnicodeError) as e:
            fail("cannot read the token: %s" % e)
        if not re.fullmatch(r"[!-~]+", token):
            fail("the file %s holds no token" % path, "write the output of `clusterctl token create` to it")
        return token

    def known_hosts(self, path, hosts):
        """Writes the host keys, and returns the options for ssh."""
        file = self.get_option("known_hosts")
        if not file:
            return ""

        file = os.path.abspath(os.path.join(os.path.dirname(path), os.path.expanduser(file)))
        if not re.fullmatch(r"/[A-Za-z0-9._/@+=,-]+", file):
            fail("ssh cannot take the path %r for host keys" % file, "set known_hosts to letters, digits and ._/@+=,-")

        keys = {name.lower(): (name, h["host_keys"]) for name, _, _, h in hosts if h.get("host_keys")}
        try:
            write_known_hosts(file, keys)
        except OSError as e:
            fail("cannot write the host keys to %s: %s" % (file, e), "set known_hosts to a file of your own")

        return "-o UserKnownHostsFile=%s -o GlobalKnownHostsFile=/dev/null -o HashKnownHosts=no" % file

    def add(self, name, group, variables, templates):
        self.inventory.add_host(name, group=self.inventory.add_group(group) if group else None)
        for key, value in templates.items():
            self.inventory.set_variable(name, key, trusted(value))
        for key, value in variables.items():
            self.inventory.set_variable(name, key, wrap_var(value))

        if any(self.get_option(option) for option in ("compose", "groups", "keyed_groups")):
            self.construct(name)

    def construct(self, name):
        """Adds the host to the groups, and the variables, of the options of Constructable."""
        strict, every = self.get_option("strict"), self.inventory.get_host(name).get_vars()
        self._set_composite_vars(self.get_option("compose"), every, name, strict=strict)
        every = self.inventory.get_host(name).get_vars()
        self._add_host_to_composed_groups(self.get_option("groups"), every, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), every, name, strict=strict)
