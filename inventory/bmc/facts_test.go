// SPDX-License-Identifier: Apache-2.0

package bmc_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

// system is the path of the only system.
const system = "/redfish/v1/Systems/1"

// TestFacts: what a BMC knows of the hardware of a machine, by the schema of DMTF.
func TestFacts(t *testing.T) {
	t.Parallel()

	service := bmctest.NewRedfish(t, 1)

	got, err := bmc.New().Facts(t.Context(), service.BMC)
	errtest.None(t, err)

	module := func(n int) facts.Module {
		return facts.Module{
			Slot: fmt.Sprint("DIMM A", n), SizeMB: 16384, Type: "DDR4", Speed: 2933, Vendor: "Hynix", Part: "HMA82",
			Serial: fmt.Sprint("m1", n),
		}
	}
	want := facts.Facts{
		Schema: 1, Sources: []string{"redfish"}, Arch: "x86_64",
		System: facts.System{
			Vendor: "Contoso", Product: "3500", Serial: "1", UUID: "00000000-0000-0000-0000-000000000001",
			BoardVendor: "Contoso", BoardProduct: "Board 35", BoardSerial: "b1",
		},
		Firmware: facts.Firmware{Version: "1.4.2", BootMode: "uefi"},
		CPU:      facts.CPU{Model: "Contoso 9000", Sockets: 2, Cores: 16, Threads: 32},
		Memory:   facts.Memory{TotalMB: 49152, Modules: []facts.Module{module(1), module(2), module(3)}},
		Disks: []facts.Disk{
			{Place: "Bay.0", SizeBytes: 480103981056, Vendor: "Contoso", Model: "DSSD", Serial: "d11",
				WWN: "0x5000c500a1b2c001"},
			{Place: "Bay.1", SizeBytes: 480103981056, Vendor: "Contoso", Model: "DHDD", Serial: "d12",
				WWN: "0x5000c500a1b2c101", Rotational: true},
		},
		Interfaces: []facts.Interface{
			{Place: "NIC.1", MAC: "52:54:00:aa:01:01", SpeedMbps: 25000, Carrier: true},
			{Place: "NIC.2", MAC: "52:54:00:aa:01:02", SpeedMbps: 25000},
		},
		BMC: facts.BMCPort{Address: "127.0.0.1", MAC: "52:54:00:bb:01:02"},
	}

	if text(t, got) != text(t, want) {
		t.Errorf("%s\nwant\n%s", text(t, got), text(t, want))
	}

	if n := service.Sessions(); n != 0 {
		t.Errorf("%d sessions were left open", n)
	}

	_, err = bmc.New().Facts(t.Context(), bmctest.NewIPMI(t, 0).BMC)
	if inventory.KindOf(err) != inventory.KindUnsupported || !strings.Contains(err.Error(), "IPMI") {
		t.Errorf("IPMI: %v", err)
	}
}

func text(t *testing.T, f facts.Facts) string {
	t.Helper()

	b, err := json.MarshalIndent(f, "", " ")
	errtest.None(t, err)

	return string(b)
}

// TestFactsOfOthers: services that have less, or another way to say it. A part that fails costs that part alone.
func TestFactsOfOthers(t *testing.T) {
	t.Parallel()

	type object = map[string]any

	for name, tt := range map[string]struct {
		change func(*bmctest.Redfish)
		good   func(facts.Facts) bool
	}{
		"only the summaries": {func(r *bmctest.Redfish) {
			r.Put(system, object{
				"Processors": nil, "Memory": nil, "Storage": nil, "EthernetInterfaces": nil, "Links": nil,
				"Boot": object{"BootSourceOverrideMode": "Legacy"}, "SerialNumber": " Not Specified ",
			})
		}, func(f facts.Facts) bool {
			return f.CPU == facts.CPU{Model: "Contoso 9000", Sockets: 2, Threads: 32} && f.Memory.TotalMB == 49152 &&
				f.Memory.Modules == nil && f.Interfaces == nil && f.Problems == nil && f.BMC == facts.BMCPort{} &&
				f.Firmware.BootMode == "bios" && f.System.Serial == ""
		}},
		"the older resource of disks": {func(r *bmctest.Redfish) {
			r.Put(system, object{"Storage": nil})
		}, func(f facts.Facts) bool {
			return slices.Equal(f.Disks, []facts.Disk{
				{Place: "Bay.0", SizeBytes: 480103981056, Vendor: "Contoso", Model: "DSSD"},
			})
		}},
		"the service tag of Dell": {func(r *bmctest.Redfish) {
			r.Put(system, object{"Manufacturer": "Dell Inc.", "SKU": "TAG1", "SerialNumber": "CN1", "Links": nil})
		}, func(f facts.Facts) bool { return f.System.Serial == "TAG1" && f.System.BoardSerial == "CN1" }},
		"a module that is gone while they are read": {func(r *bmctest.Redfish) {
			r.Put("/redfish/v1/Chassis/1/Drives/Bay.0", nil)
		}, func(f facts.Facts) bool { return len(f.Disks) == 1 && f.Disks[0].Serial == "d12" && f.Problems == nil }},
		"pages": {func(r *bmctest.Redfish) {
			page := func(next string, members ...string) object {
				o := object{"Members": []object{}}
				for _, m := range members {
					o["Members"] = append(o["Members"].([]object), object{"@odata.id": system + "/Memory/DIMM." + m})
				}
				if next != "" {
					o["Members@odata.nextLink"] = system + next
				}
				return o
			}
			r.Put(system+"/Memory", page("/Memory2", "A1"))
			r.Put(system+"/Memory2", page("/Memory3"))
			r.Put(system+"/Memory3", page("", "A2", "A3"))
		}, func(f facts.Facts) bool { return len(f.Memory.Modules) == 3 }},
		"another type in a field that does not matter": {func(r *bmctest.Redfish) {
			r.Put(system+"/Memory/DIMM.A1", object{"CapacityMiB": 1024.0, "RankCount": "two", "Location": []int{1}})
		}, func(f facts.Facts) bool { return len(f.Memory.Modules) == 3 && f.Memory.Modules[0].SizeMB == 1024 }},
		"long and hostile texts": {func(r *bmctest.Redfish) {
			r.Put(system, object{"Model": strings.Repeat("x", 1<<20), "BiosVersion": "\x1b[2J\n1"})
		}, func(f facts.Facts) bool {
			return len(f.System.Product) <= 256 && !strings.ContainsAny(f.Firmware.Version, "\x1b\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			service := bmctest.NewRedfish(t, 1)
			tt.change(service)

			f, err := bmc.New().Facts(t.Context(), service.BMC)
			if errtest.None(t, err); !tt.good(f) {
				t.Error(text(t, f))
			}
		})
	}

	service := bmctest.NewRedfish(t, 1)
	fail := func(at string) {
		service.Answer(func(w http.ResponseWriter, q *http.Request) {
			if strings.HasPrefix(q.URL.Path, at) {
				http.Error(w, "\x1b[2Jbroken", http.StatusInternalServerError)
				return
			}
			service.Serve(w, q)
		})
	}

	fail(system + "/Memory/DIMM.A2")
	f, err := bmc.New().Facts(t.Context(), service.BMC)
	errtest.None(t, err)

	if len(f.Problems) != 1 || !strings.HasPrefix(f.Problems[0], "the memory modules: ") ||
		!strings.Contains(f.Problems[0], "500") || f.Memory.Modules != nil || len(f.Disks) != 2 {
		t.Error(text(t, f))
	}

	fail(system)
	if _, err := bmc.New().Facts(t.Context(), service.BMC); err == nil {
		t.Error("there is no error without the system")
	}
}

// TestHostileFacts: a service without an end, or one that answers with garbage, ends in an error after a bounded number
// of requests.
func TestHostileFacts(t *testing.T) {
	t.Parallel()

	type object = map[string]any

	many := make([]object, 501)
	for i := range many {
		many[i] = object{"@odata.id": system + "/Memory/DIMM.A1"}
	}

	for name, tt := range map[string]struct {
		resource object
		text     string
	}{
		"members without end":  {object{"Members": many}, "more than 500"},
		"pages without end":    {object{"Members@odata.nextLink": system + "/Memory"}, "more than 500"},
		"a page for each":      {object{"Members": many[:1], "Members@odata.nextLink": system + "/Memory"}, "than 500"},
		"another shape":        {object{"Members": "many"}, "does not speak Redfish"},
		"a negative size":      {nil, "_mb is -"},
		"away by a link":       {object{"Members": []object{{"@odata.id": "@127.9.9.9/x"}}}, "another one"},
		"an answer of 5 MB":    {object{"x": strings.Repeat("x", 5<<20)}, "more than 4194304 bytes"},
		"an answer that stops": {nil, "does not speak Redfish"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			service := bmctest.NewRedfish(t, 1)
			requests := 0

			service.Answer(func(w http.ResponseWriter, q *http.Request) {
				requests++ // one after the other

				if name == "an answer that stops" && strings.HasSuffix(q.URL.Path, "/Memory") {
					io.WriteString(w, `{"Members":[`)
					return
				}
				service.Serve(w, q)
			})

			if tt.resource != nil {
				service.Put(system+"/Memory", tt.resource)
			} else {
				service.Put(system+"/Memory/DIMM.A1", object{"CapacityMiB": -1e300})
			}

			_, err := bmc.New().Facts(t.Context(), service.BMC)
			if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, want %q", err, tt.text)
			}

			if requests > 520 {
				t.Errorf("%d requests", requests)
			}
			if n := service.Sessions(); n != 0 {
				t.Errorf("%d sessions were left open", n)
			}
		})
	}
}
