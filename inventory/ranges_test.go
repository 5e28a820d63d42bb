// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	t.Parallel()

	for s, want := range map[string]struct {
		n           int
		first, last string
	}{
		"10.0.0.5-10.0.0.20":            {16, "10.0.0.5", "10.0.0.20"},
		"10.0.0.5-20":                   {16, "10.0.0.5", "10.0.0.20"},
		"10.0.0.254-10.0.1.1":           {4, "10.0.0.254", "10.0.1.1"},
		"10.0.0.5-10.0.0.5":             {1, "10.0.0.5", "10.0.0.5"},
		"10.0.0.7":                      {1, "10.0.0.7", "10.0.0.7"},
		"10.0.0.0/24":                   {254, "10.0.0.1", "10.0.0.254"},
		"10.0.0.0/30":                   {2, "10.0.0.1", "10.0.0.2"},
		"10.0.0.0/31":                   {2, "10.0.0.0", "10.0.0.1"},
		"10.0.0.9/32":                   {1, "10.0.0.9", "10.0.0.9"},
		"10.0.0.0/22":                   {1022, "10.0.0.1", "10.0.3.254"},
		"255.255.255.254/31":            {2, "255.255.255.254", "255.255.255.255"},
		"fd00::/126":                    {3, "fd00::1", "fd00::3"},
		"fd00::9/128":                   {1, "fd00::9", "fd00::9"},
		"fd00::ffff-fd00::1:0":          {2, "fd00::ffff", "fd00::1:0"},
		"FD00:0::1-fd00::2":             {2, "fd00::1", "fd00::2"},
		"10.0.0.0-10.0.3.255":           {1024, "10.0.0.0", "10.0.3.255"},
		"255.255.255.0-255.255.255.255": {256, "255.255.255.0", "255.255.255.255"},
	} {
		got, err := ParseRange(s)
		if err != nil || len(got) != want.n || got[0] != want.first || got[len(got)-1] != want.last {
			t.Errorf("%s has %d addresses, %v; want %+v; %v", s, len(got), got, want, err)
		}
	}
}

func TestParseRangeRefuses(t *testing.T) {
	t.Parallel()

	for s, why := range map[string]string{
		"":                          "no IP address",
		"10.0.0.20-10.0.0.5":        "before its first",
		"10.0.0.5-fd00::1":          "mixes",
		"10.0.0.5-":                 "no IP address",
		"10.0.0.5-300":              "no IP address",
		"10.0.0.5-10.0.0.6-7":       "no IP address",
		"fd00::1-5x":                "no IP address",
		"10.0.0.0/33":               "no network",
		"10.0.0.0/":                 "no network",
		"host/24":                   "no network",
		"10.0.0.5/24":               "within the network 10.0.0.0/24",
		"10.0.0.0/21":               "more than 1024",
		"0.0.0.0/0":                 "more than 1024",
		"::/0":                      "more than 1024",
		"fd00::/64":                 "more than 1024",
		"10.0.0.0-10.0.4.0":         "more than 1024",
		"fe80::1%eth0-fe80::2%eth0": "no IP address",
		"::ffff:10.0.0.1":           "no IP address",
	} {
		got, err := ParseRange(s)
		if KindOf(err) != KindInvalid || !strings.Contains(err.Error(), why) {
			t.Errorf("%q has %d addresses: %v", s, len(got), err)
		}
	}
}

func TestIsRange(t *testing.T) {
	t.Parallel()

	for s, want := range map[string]bool{
		"10.0.0.0/24": true, "10.0.0.5-20": true, "fd00::1-fd00::2": true, "x/y": true,
		"10.0.0.5": false, "web-1": false, "rack1-node2.example": false, "": false, "10-0-0-5.example": false,
	} {
		if IsRange(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}
