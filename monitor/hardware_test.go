// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestHardware: what a member says of its machine comes back; the tags stay within the bound of serf, and what is no
// UUID and no MAC is left out.
func TestHardware(t *testing.T) {
	t.Parallel()

	const uuid = "4c4c4544-0042-3510-8054-b4c04f4d5932"

	var macs []string
	for i := range 40 {
		macs = append(macs, fmt.Sprintf("52:54:00:aa:00:%02x", i))
	}

	for _, c := range []struct {
		addr string
		says Hardware
		want Hardware
	}{
		{"10.0.0.1", Hardware{}, Hardware{}},
		{"10.0.0.1", Hardware{UUID: uuid, MACs: macs[:2]}, Hardware{UUID: uuid, MACs: macs[:2]}},
		{"10.0.0.1", Hardware{MACs: macs}, Hardware{MACs: macs[:6]}},
		{strings.Repeat("a", 300), Hardware{UUID: uuid, MACs: macs}, Hardware{UUID: uuid, MACs: macs[:5]}},
		{strings.Repeat("a", 450), Hardware{UUID: uuid, MACs: macs}, Hardware{}},
	} {
		tags := c.says.Add(Identity{Label: "web", Serial: "AB12", Addr: c.addr}.Tags())

		size := 0
		for key, value := range tags {
			size += len(key) + len(value)
		}

		if size > 512 {
			t.Errorf("%+v: the tags have %d bytes", c.says, size)
		}

		if got := HardwareOf(tags); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v became %+v, want %+v", c.says, got, c.want)
		}
	}

	for _, text := range []string{
		"", "x", ",,,", "52:54", "00:00:5e:00:53:00:00:01", "\x1b[31m,<b>", strings.Repeat("52:54:00:aa:00:01,", 1<<16),
		uuid[:35],
	} {
		if got := HardwareOf(map[string]string{TagHardware: text}); !reflect.DeepEqual(got, Hardware{}) {
			t.Errorf("%.40q became %+v", text, got)
		}
	}

	got := HardwareOf(map[string]string{TagHardware: "52:54:00:AA:00:01,52-54-00-aa-00-01,no," + strings.ToUpper(uuid)})
	if want := (Hardware{UUID: uuid, MACs: macs[1:2]}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
