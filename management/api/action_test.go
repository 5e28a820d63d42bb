// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/contiv/cluster/management/api"
)

func TestShellQuote(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "''",
		"unix:///run/a.sock": "unix:///run/a.sock",
		"a b":                "'a b'",
		"it's":               `'it'\''s'`,
	} {
		if got := api.ShellQuote(text); got != want {
			t.Errorf("ShellQuote(%q) = %s, want %s", text, got, want)
		}
	}
}
