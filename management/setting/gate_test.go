// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/monitor"
)

// TestGateCommands: a rollout of a policy may have a command of the file, whose arguments are
// not shown. A wrong command is refused with its key.
func TestGateCommands(t *testing.T) {
	t.Parallel()

	const policies = "policies: {upgrade: {follow: {all: true, mode: upgrade, " +
		"gate: {command: {name: smoke, timeout: 5m}}}}}"

	f, err := Load(write(t, "gate_commands: {smoke: [/usr/local/bin/smoke, s3cret]}\n"+policies), acceptAll{})
	errtest.None(t, err)
	if g := f.Config.upgradeRules()[0].Spec.Gate.Command; g == nil || g.Name != "smoke" || g.Timeout.Minutes() != 5 {
		t.Errorf("%+v", g)
	}

	shown := fmt.Sprint(values(f.Config, nil, nil, monitor.Identity{})["gate_commands"].Value)
	if strings.Contains(shown, "s3cret") || !strings.Contains(shown, configuration.Hidden) ||
		!strings.Contains(shown, "/usr/local/bin/smoke") {
		t.Error(shown)
	}

	for section, want := range map[string]string{
		"gate_commands: {smoke: []}":          "gate_commands.smoke: it is empty",
		"gate_commands: {smoke: [smoke]}":     `gate_commands.smoke: "smoke" is not an absolute path`,
		"gate_commands: {Smoke: [/bin/true]}": `gate_commands: the name of a command is "Smoke"`,
		policies:                              `policies.upgrade.follow: gate: there is no command "smoke"`,
	} {
		if _, err := Load(write(t, section), acceptAll{}); inventory.KindOf(err) != inventory.KindInvalid ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", section, err)
		}
	}
}
