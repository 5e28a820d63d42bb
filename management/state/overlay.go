// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/record"
)

// Overlay has the configuration keys set at run time. It is stored without any as well: its revision
// dates the removal of the last key.
type Overlay struct {
	Keys configuration.Vars `json:"keys"` // never nil
}

// OverlayVars is the key of the overlay that holds variables.
const OverlayVars = "vars"

// Overlays is the one Overlay of a store.
var Overlays = record.Kind[Overlay]{
	Name: "overlay", Single: true,
	Secret: func(o *Overlay, convert record.Convert) (*Overlay, error) {
		vars, ok := o.Keys[OverlayVars].(map[string]any)
		if !ok {
			return o, nil
		}
		converted, err := convert([]string{"overlay", OverlayVars}, vars)
		keys := maps.Clone(o.Keys)
		keys[OverlayVars] = converted

		return &Overlay{keys}, err
	},
	Damaged: func(string, *Overlay) *Overlay { return &Overlay{} },
	// The revision of the configuration is the same for everybody.
	Show: func(*Overlay, record.Scope) *Overlay { return &Overlay{} },
}

// OverlayOf returns the configuration keys set at run time. They must not be changed.
func OverlayOf(r record.Reader) map[string]any { return record.One(r, &Overlays).Keys }

// ConfigFile identifies the content of an instance's configuration file.
type ConfigFile struct {
	Digest string `json:"digest"`
}

// ConfigFiles are those of all instances, by their ids. A new digest is a change of the configuration.
var ConfigFiles = record.Kind[ConfigFile]{
	Name: "files",
	Show: func(*ConfigFile, record.Scope) *ConfigFile { return &ConfigFile{} },
}

// ConfigAt returns the revision of the last change of the configuration, in the overlay or in the
// file of an instance; 0: it never changed.
func ConfigAt(r record.Reader) int64 {
	at := record.Revision(r, &Overlays, "")
	for instance := range record.All(r, &ConfigFiles) {
		at = max(at, record.Revision(r, &ConfigFiles, instance))
	}

	return at
}
