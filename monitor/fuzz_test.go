// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// FuzzTags expects the tags of a member to be refused with a bounded reason, or to
// be an identity that survives its own encoding.
func FuzzTags(f *testing.F) {
	f.Add("web", "1", "10.0.0.1", uint8(7))
	f.Add("", "", "", uint8(0))
	f.Add("{{ x }}", "1\n", "10.0.0.1 ansible_user=root", uint8(7))
	f.Add(strings.Repeat("a", 300), "\xff", "fe80::1%eth0", uint8(5))

	f.Fuzz(func(t *testing.T, label, serial, addr string, present uint8) {
		tags := map[string]string{"role": label}
		for i, tag := range [][2]string{{TagLabel, label}, {TagSerial, serial}, {TagAddr, addr}} {
			if present&(1<<i) != 0 {
				tags[tag[0]] = tag[1]
			}
		}

		id, err := IdentityOf(tags)
		if err != nil {
			// The reason is logged: quoted, a byte has up to four characters.
			if id != (Identity{}) || len(err.Error()) > 3*(4*maxTag+300) ||
				strings.ContainsAny(err.Error(), "\x1b\r\x00") {
				t.Fatalf("%q: %+v, %q", tags, id, err)
			}

			if errors.Is(err, ErrNotNode) != (present&7 == 0) {
				t.Fatalf("%q: %v", tags, err)
			}

			return
		}

		want := map[string]string{TagLabel: label, TagSerial: serial, TagAddr: addr}
		if id.Check() != nil || !maps.Equal(id.Tags(), want) || id.Name() != label+"-"+serial {
			t.Fatalf("%q became %+v", tags, id)
		}
	})
}

// FuzzMembers plays changes of members: each claims at most the node of its tags, and
// a node is alive by a live member only.
func FuzzMembers(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0x10, 0x91, 0x20, 0x10, 0xff})
	f.Add([]byte("join, claim, leave, claim again"))

	f.Fuzz(func(t *testing.T, script []byte) {
		tr := newTracker(nil)

		for _, b := range script[:min(len(script), 500)] {
			m := Member{Name: string('m' + rune(b&3)), Addr: "10.0.0.1:7946", Alive: b&0x10 == 0}
			id := Identity{Label: "web", Serial: string('1' + rune(b>>2&3)), Addr: "10.0.0.1"}

			switch {
			case b&0x80 != 0 && b&0x40 != 0:
				tr.remove(m.Name)
				continue
			case b&0x80 != 0:
				m.Tags = map[string]string{"role": "x"}
			default:
				m.Tags = id.Tags()
			}

			tr.put(m)
		}

		for name, r := range tr.members {
			if (r.node == "") != (r.err != nil) || r.node != "" && r.node != r.id.Name() {
				t.Fatalf("%v: the member %s is %q, %v", script, name, r.node, r.err)
			}
		}

		for name, n := range tr.nodes {
			holder := n.members[n.holder]
			if n.view.Alive && (holder == nil || !holder.Alive || n.view.Name() != name) {
				t.Fatalf("%v: %q is alive as %+v, by %q", script, name, n.view, n.holder)
			}
		}

		// Every claim on a node is a member's, and the other way round.
		claims := 0
		for name, n := range tr.nodes {
			claims += len(n.members)

			for _, r := range n.members {
				if r.node != name {
					t.Fatalf("%v: %q claims %q", script, r.node, name)
				}
			}
		}

		for _, r := range tr.members {
			if r.node != "" {
				claims--
			}
		}

		if claims != 0 {
			t.Fatalf("%v: %d claims without a member", script, claims)
		}
	})
}
