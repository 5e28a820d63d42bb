// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestMissingFirmware names each file that drivers asked for in vain, and the package that has it.
func TestMissingFirmware(t *testing.T) {
	t.Parallel()

	got := missingFirmware(`<4>[    2.1] tg3 0000:02:00.0: firmware: failed to load tigon/tg3_tso.bin (-2)
<4>[    2.1] tg3 0000:02:00.0: Direct firmware load for tigon/tg3_tso.bin failed with error -2
<4>[    2.2] r8169 0000:03:00.0: Direct firmware load for rtl_nic/rtl8168g-2.fw failed with error -2
<4>[    2.3] x 0000:04:00.0: Direct firmware load for x.bin failed with error -2
<6>[    2.4] y 0000:05:00.0: Direct firmware load for y.bin failed with error -22
<4>[    2.5] z: Direct firmware load for \x1b[31m failed with error -2
`)
	want := []string{
		"A driver lacks the firmware rtl_nic/rtl8168g-2.fw: add it to the initrd as " +
			"lib/firmware/rtl_nic/rtl8168g-2.fw (Debian's package firmware-realtek has it).",
		"A driver lacks the firmware tigon/tg3_tso.bin: add it to the initrd as lib/firmware/tigon/tg3_tso.bin " +
			"(Debian's package firmware-misc-nonfree has it).",
		"A driver lacks the firmware x.bin: add it to the initrd as lib/firmware/x.bin.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}

	var log strings.Builder
	for i := range 100 {
		fmt.Fprintf(&log, "Direct firmware load for %d failed with error -2\n", i)
	}
	if n := len(missingFirmware(log.String())); n != maxFirmware {
		t.Errorf("the console names %d files", n)
	}
}
