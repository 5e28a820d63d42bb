// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"reflect"
	"testing"
)

// TestPlaysIn reads the output of ansible-core 2.14.
func TestPlaysIn(t *testing.T) {
	t.Parallel()

	const out = "\nplaybook: site.yml\n\n" +
		"  play #1 (service-master,&job_targets): Masters (first): all\tTAGS: [a,b]\n" +
		"    pattern: ['service-master', '&job_targets']\n" +
		"    hosts (2):\n      web-1\n      web-2\n\n" +
		"  play #2 (job_helpers): job_helpers\tTAGS: []\n" +
		"    pattern: ['job_helpers']\n" +
		"    hosts (0):\n"

	want := []Play{
		{
			Name:    "Masters (first): all",
			Pattern: []string{"service-master", "&job_targets"},
			Hosts:   []string{"web-1", "web-2"},
		},
		{Name: "job_helpers", Pattern: []string{"job_helpers"}},
	}
	if got := playsIn(out); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}

	if got := playsIn("[WARNING]: nothing\n      x\n"); got != nil {
		t.Errorf("plays out of nothing: %+v", got)
	}
}
