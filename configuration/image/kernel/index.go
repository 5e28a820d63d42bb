// SPDX-License-Identifier: Apache-2.0

package kernel

// IndexFile is where an environment has its Index.
const IndexFile = "modules.json"

// Index lists the modules of an environment.
type Index struct {
	Release string   `json:"release"` // of the kernel
	Modules []Module `json:"modules"`
}

// Module is a module of a kernel.
type Module struct {
	Name    string   `json:"name"`              // with underscores, as the kernel shows it
	Path    string   `json:"path"`              // in the environment, without a leading slash
	Aliases []string `json:"aliases,omitempty"` // patterns of the devices it drives, as in a modalias
	Depends []string `json:"depends,omitempty"` // names of modules that have to be loaded before
	Before  []string `json:"before,omitempty"`  // names of modules to load before, if they can be
	After   []string `json:"after,omitempty"`   // names of modules to load after it, if they can be
}
