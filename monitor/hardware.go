// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"net"
	"regexp"
	"slices"
	"strings"
)

// TagHardware says which machine a node is: its UUID and MACs, with commas. Stock agents of serf do not have it.
const TagHardware = "NodeHardware"

const (
	// maxTags bounds all tags of a member as serf encodes them, in bytes. A member with more cannot start.
	maxTags = 512
	// maxMACs is the number of MACs that a member announces.
	maxMACs = 6
)

// Hardware is what tells a machine from others. Its agent says it, so it is untrusted.
type Hardware struct {
	UUID string   // of the system (SMBIOS), lower case; empty: unknown
	MACs []string // of network ports, lower case, with colons
}

// uuidForm is the form of a UUID.
var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Add returns the tags of a member with those of the hardware, as far as they fit.
func (h Hardware) Add(tags map[string]string) map[string]string {
	size := 8 // of the header
	for key, value := range tags {
		size += len(key) + len(value) + 6
	}

	words := h.MACs[:min(len(h.MACs), maxMACs)]
	if h.UUID != "" {
		words = append([]string{h.UUID}, words...)
	}

	for ; len(words) > 0; words = words[:len(words)-1] {
		text := strings.Join(words, ",")
		if size+len(TagHardware)+len(text)+6 <= maxTags {
			tags[TagHardware] = text
			break
		}
	}

	return tags
}

// HardwareOf decodes the hardware from the tags of a member. What is no UUID and no MAC is left out.
func HardwareOf(tags map[string]string) Hardware {
	var h Hardware

	text := tags[TagHardware]
	if len(text) > maxTags {
		return h
	}

	for word := range strings.SplitSeq(strings.ToLower(text), ",") {
		mac, err := net.ParseMAC(word)

		switch {
		case uuidForm.MatchString(word) && h.UUID == "":
			h.UUID = word
		case err == nil && len(mac) == 6 && len(h.MACs) < maxMACs && !slices.Contains(h.MACs, mac.String()):
			h.MACs = append(h.MACs, mac.String())
		}
	}

	return h
}
