# SPDX-License-Identifier: Apache-2.0
"""Filters for the addresses and member lists of etcd."""

import json
import re

# Addresses, names and URLs come from other hosts, and go into arguments and files.
ADDR = re.compile(r"[A-Za-z0-9.:-]+\Z")
NAME = re.compile(r"[A-Za-z0-9._-]*\Z")
URL = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+\Z")


def etcd_url(addr, port):
    """Return the URL of a port at an address: etcd_url("fd00::1", 2379) is http://[fd00::1]:2379."""
    if not ADDR.match(addr):
        raise ValueError("%r is not an address" % addr)
    return ("http://[%s]:%s" if ":" in addr else "http://%s:%s") % (addr, port)


def etcd_members(text):
    """Parse the output of `etcdctl member list --write-out=json` into a list of members.

    A member has id (in etcdctl's format), name (empty until its first start),
    peer_urls, client_urls and learner (true while it has no vote). A name or URL
    with unexpected characters is an error.
    """
    members = [
        {
            "id": "%x" % member["ID"],
            "name": member.get("name", ""),
            "peer_urls": member.get("peerURLs", []),
            "client_urls": member.get("clientURLs", []),
            "learner": member.get("isLearner", False),
        }
        for member in json.loads(text)["members"]
    ]
    for member in members:
        for value, pattern in [(member["name"], NAME)] + [(u, URL) for u in member["peer_urls"] + member["client_urls"]]:
            if not pattern.match(value):
                raise ValueError("the member list of etcd has the name or URL %r, which is not valid" % value)
    return members


def etcd_select(members, names, peer_urls, match=True):
    """Return the members with one of the names or one of the peer URLs; with match=False, the others."""
    return [
        member
        for member in members
        if match == (member["name"] in names or any(url in peer_urls for url in member["peer_urls"]))
    ]


def etcd_error(text):
    """Return the error of etcdctl without its log, which goes to the same stream."""
    lines = [line for line in str(text).splitlines() if line.strip() and not line.startswith("{")]
    return "; ".join(lines) or str(text)


class FilterModule:
    def filters(self):
        return {
            "etcd_error": etcd_error,
            "etcd_url": etcd_url,
            "etcd_members": etcd_members,
            "etcd_select": etcd_select,
        }
