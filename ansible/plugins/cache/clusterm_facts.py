# SPDX-License-Identifier: Apache-2.0
"""Keeps facts in memory, without those that would replace variables of the manager and its operators."""

import json

from ansible.plugins.cache import BaseCacheModule
from ansible.utils.display import Display

DOCUMENTATION = """
    name: clusterm_facts
    short_description: Memory for facts that refuses the names of reserved variables
    description:
      - In Ansible, a fact replaces a variable of the inventory that has the same name. A host supplies its facts, so it
        could change its own name and address for every play and for every other host.
      - This plugin drops such facts and prints a warning. All other facts are kept in memory.
    options:
      _uri:
        description: path of a JSON list of names that a fact must not have
        required: true
        env:
          - name: ANSIBLE_CACHE_PLUGIN_CONNECTION
        ini:
          - key: fact_caching_connection
            section: defaults
"""

# Variables of the manager, whether the inventory has them or not.
RESERVED_PREFIX = "clusterm_"


def without_reserved(facts, reserved):
    """Return the facts that may be kept, and the sorted names of the others."""
    refused = sorted(name for name in facts if name in reserved or str(name).startswith(RESERVED_PREFIX))
    return {name: value for name, value in facts.items() if name not in refused}, refused


class CacheModule(BaseCacheModule):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._cache = {}
        self._warned = set()
        with open(self.get_option("_uri"), encoding="utf-8") as file:
            self._reserved = frozenset(json.load(file))

    def get(self, key):
        return self._cache[key]

    def set(self, key, value):
        self._cache[key], refused = without_reserved(value, self._reserved)
        for name in refused:
            # Only names from the list are printed: a host chooses the others.
            shown = name if name in self._reserved else RESERVED_PREFIX + "…"
            if (key, shown) not in self._warned:
                self._warned.add((key, shown))
                Display().warning(
                    "host %s returned a fact named %s, which is a variable of clusterm: it is ignored" % (key, shown)
                )

    def keys(self):
        return self._cache.keys()

    def contains(self, key):
        return key in self._cache

    def delete(self, key):
        del self._cache[key]

    def flush(self):
        self._cache = {}

    def copy(self):
        return self._cache.copy()
