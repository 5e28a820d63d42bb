// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

// TestManualPage requires every key of the configuration in the manual page, with its
// default and its comment.
func TestManualPage(t *testing.T) {
	t.Parallel()

	page, err := ManualPage()
	errtest.None(t, err)
	text := string(page)
	for _, e := range entries(Default()) {
		if strings.Count(text, `\fB`+roff(e.key)+`\fR`) != 1 {
			t.Errorf("the page lacks %s, or has it twice", e.key)
		}
	}

	for _, part := range []string{
		"An unknown key is an error.\n",
		".EX\n  clusterm \\-\\-config /etc/clusterm/clusterm.yaml",
		".TP\n\\fBjobs.limit\\fR (default: 4)\nThe number of jobs that run at a time, 1 to 1000.\n",
		".TP\n\\fBetcd.cert_file\\fR\n.TQ\n\\fBetcd.key_file\\fR\nThe client certificate and its private key, PEM.",
		"\\fBgroups\\fR (default: [{name: service\\-master}, " +
			"{name: service\\-worker, requires: {service\\-master: 1}}])\n",
		".TP\n\\fBjobs.keep\\fR (default: 1000)\n.TQ\n\\fBjobs.keep_for\\fR (default: 720h)\n" +
			".TQ\n\\fBjobs.keep_bytes\\fR (default: 268435456)\nThe retention of ended jobs",
		".SS gossip\nThe gossip that observes nodes. Write \\fBgossip: off\\fR for",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}

	if strings.Contains(text, "\n#") || strings.Contains(text, "SPDX") != strings.HasPrefix(text, `.\" SPDX`) {
		t.Errorf("comment signs are left in the page:\n%s", text)
	}
}
