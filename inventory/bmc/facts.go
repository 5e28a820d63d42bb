// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/inventory/machine"
)

const (
	// waitFacts bounds a session that reads facts. A BMC may take a second for each part of a machine.
	waitFacts = 90 * time.Second
	// resourcesLimit bounds the resources of a machine that are read.
	resourcesLimit = 500
)

// Facts logs in, and returns what the BMC knows of the hardware of the machine: without what runs on it, and within 90
// seconds. A part that the BMC fails to tell is among the problems. Only Redfish tells facts.
func (p *Pool) Facts(ctx context.Context, b machine.BMC) (f facts.Facts, err error) {
	if b.Driver == machine.IPMI {
		return f, inventory.Errorf(inventory.KindUnsupported, "the BMC at %s speaks IPMI, which tells no facts",
			hostPort(b)).Do("register an address for ssh, or the BMC with a driver of Redfish")
	}

	err = p.within(ctx, b, waitFacts, func(ctx context.Context, s session) error {
		service, ok := s.(*redfish)
		if !ok {
			return unable(b, "it speaks no Redfish")
		}

		f, err = service.facts(ctx)

		return err
	})

	return f, err
}

// The resources of DMTF's schema, as far as they are read. The types of gofish refuse a resource in which any field has
// another type than in the schema, which is not rare.
type (
	link struct {
		Path string `json:"@odata.id"`
	}

	collection struct {
		Members []link
		Next    string `json:"Members@odata.nextLink"`
	}

	status struct{ State string }

	computer struct {
		Manufacturer, Model, SubModel, SerialNumber, SKU, UUID, BiosVersion string

		Boot             struct{ BootSourceOverrideMode string }
		ProcessorSummary struct {
			Model                                   string
			Count, CoreCount, LogicalProcessorCount float64
		}
		MemorySummary struct{ TotalSystemMemoryGiB float64 }

		Processors, Memory, Storage, SimpleStorage, EthernetInterfaces link

		Links struct{ Chassis, ManagedBy []link }
	}

	processor struct {
		ProcessorType, InstructionSet, Model string
		TotalCores, TotalThreads             float64
		Status                               status
	}

	dimm struct {
		ID                                                    string `json:"Id"`
		DeviceLocator, Manufacturer, PartNumber, SerialNumber string
		MemoryDeviceType                                      string
		CapacityMiB, OperatingSpeedMhz                        float64
		Status                                                status
	}

	storage struct{ Drives []link }

	drive struct {
		ID                                      string `json:"Id"`
		Name, Manufacturer, Model, SerialNumber string
		MediaType                               string
		CapacityBytes                           float64
		Identifiers                             []struct{ DurableName, DurableNameFormat string }
		Status                                  status
	}

	simpleStorage struct{ Devices []drive }

	ethernet struct {
		ID                                string `json:"Id"`
		MACAddress, PermanentMACAddress   string
		EthernetInterfaceType, LinkStatus string
		SpeedMbps                         float64
		IPv4Addresses, IPv6Addresses      []struct{ Address string }
		Status                            status
	}

	enclosure struct{ Assembly link }

	assembly struct {
		Assemblies []struct{ PhysicalContext, Vendor, Producer, Model, PartNumber, SerialNumber string }
	}

	manager struct{ EthernetInterfaces link }
)

// absent reports whether a slot is empty.
func (s status) absent() bool { return s.State == "Absent" }

// reader reads the facts of a machine.
type reader struct {
	*redfish

	left  int // resources that may still be read
	facts facts.Facts
}

func (s *redfish) facts(ctx context.Context) (facts.Facts, error) {
	r := &reader{redfish: s, left: resourcesLimit}
	r.facts = facts.Facts{Schema: facts.Schema, Sources: []string{facts.Redfish}}

	system, err := read[computer](ctx, r, s.path)

	switch {
	case errors.Is(err, errAbsent):
		return facts.Facts{}, s.noSystem()
	case err != nil:
		return facts.Facts{}, err
	}

	r.system(system)

	for _, part := range []struct {
		name string
		read func() error
	}{
		{"the processors", func() error { return r.processors(ctx, system) }},
		{"the memory modules", func() error { return r.modules(ctx, system) }},
		{"the disks", func() error { return r.disks(ctx, system) }},
		{"the network ports", func() error { return r.interfaces(ctx, system.EthernetInterfaces) }},
		{"the mainboard", func() error { return r.board(ctx, system.Links.Chassis) }},
		{"the BMC", func() error { return r.port(ctx, system.Links.ManagedBy) }},
	} {
		err := part.read()

		switch {
		case err == nil, errors.Is(err, errAbsent):
		case inventory.KindOf(err) == inventory.KindUnavailable:
			return facts.Facts{}, err // it is no service of Redfish, or is gone
		default:
			r.facts.Problems = append(r.facts.Problems, part.name+": "+err.Error())
		}
	}

	if err := r.facts.Bound(); err != nil {
		return facts.Facts{}, garbage(s.bmc, err.Error())
	}

	return r.facts, nil
}

// errAbsent is the error for a resource that the service does not have.
var errAbsent = errors.New("the service has no such resource")

// read reads a resource.
func read[T any](ctx context.Context, r *reader, path string) (resource T, err error) {
	switch r.left--; {
	case ctx.Err() != nil:
		return resource, unreachable(r.bmc, context.DeadlineExceeded)
	case path == "":
		return resource, errAbsent
	case r.left < 0:
		return resource, garbage(r.bmc, fmt.Sprintf("the machine has more than %d resources", resourcesLimit))
	}

	response, err := r.client.Get(path)
	defer schemas.DeferredCleanupHTTPResponse(response)

	if err == nil {
		err = json.NewDecoder(response.Body).Decode(&resource)
	}

	answer := &schemas.Error{}
	if errors.As(err, &answer) && answer.HTTPReturnedStatusCode == http.StatusNotFound {
		return resource, errAbsent
	}

	return resource, r.error(err)
}

// each calls f with every resource of the links. Those that the service does not have are left out.
func each[T any](ctx context.Context, r *reader, links []link, f func(T) error) error {
	if len(links) > r.left {
		return garbage(r.bmc, fmt.Sprintf("the machine has more than %d resources", resourcesLimit))
	}

	for _, l := range links {
		resource, err := read[T](ctx, r, l.Path)
		if err == nil {
			err = f(resource)
		}

		if err != nil && !errors.Is(err, errAbsent) {
			return err
		}
	}

	return nil
}

// members is each for the members of a collection, on all of its pages.
func members[T any](ctx context.Context, r *reader, path string, f func(T) error) error {
	for path != "" {
		page, err := read[collection](ctx, r, path)
		if err == nil {
			err = each(ctx, r, page.Members, f)
		}
		if err != nil {
			return err
		}

		path = page.Next
	}

	return nil
}

func (r *reader) system(c computer) {
	s := &r.facts.System
	s.Vendor, s.Product, s.Version = facts.Known(c.Manufacturer), facts.Known(c.Model), facts.Known(c.SubModel)
	s.Serial, s.UUID = facts.Known(c.SerialNumber), strings.ToLower(facts.Known(c.UUID))

	// Dell's serial number is that of the mainboard. SMBIOS has the service tag.
	if tag := facts.Known(c.SKU); tag != "" && strings.HasPrefix(s.Vendor, "Dell") {
		s.Serial, s.BoardSerial = tag, s.Serial
	}

	r.facts.Firmware.Version = facts.Known(c.BiosVersion)

	// As Ironic does: services have no other field for it.
	switch c.Boot.BootSourceOverrideMode {
	case string(schemas.LegacyBootSourceOverrideMode):
		r.facts.Firmware.BootMode = facts.BIOS
	case string(schemas.UEFIBootSourceOverrideMode):
		r.facts.Firmware.BootMode = facts.UEFI
	}
}

// archs are the architectures as uname -m prints them.
var archs = map[string]string{"x86-64": "x86_64", "ARM-A64": "aarch64"}

func (r *reader) processors(ctx context.Context, c computer) error {
	found := &r.facts.CPU
	*found = facts.CPU{
		Model:   facts.Known(c.ProcessorSummary.Model),
		Sockets: int(c.ProcessorSummary.Count),
		Cores:   int(c.ProcessorSummary.CoreCount),
		Threads: int(c.ProcessorSummary.LogicalProcessorCount),
	}

	var sum facts.CPU

	err := members(ctx, r, c.Processors.Path, func(p processor) error {
		// An accelerator is a processor as well.
		if p.Status.absent() || p.ProcessorType != "" && p.ProcessorType != "CPU" {
			return nil
		}

		sum.Sockets++
		sum.Cores += int(p.TotalCores)
		sum.Threads += int(p.TotalThreads)

		if sum.Model == "" {
			sum.Model = facts.Known(p.Model)
		}
		if r.facts.Arch == "" {
			r.facts.Arch = archs[p.InstructionSet]
		}

		return nil
	})
	if err != nil {
		return err
	}

	// The summary may count threads as cores.
	if sum.Cores > 0 && sum.Threads > 0 {
		sum.Model = cmp.Or(sum.Model, found.Model)
		*found = sum
	}

	return nil
}

func (r *reader) modules(ctx context.Context, c computer) error {
	const mebibytes = 1024 // of a gibibyte

	found := &r.facts.Memory
	found.TotalMB = int(c.MemorySummary.TotalSystemMemoryGiB * mebibytes)

	var (
		all []facts.Module
		sum int
	)

	err := members(ctx, r, c.Memory.Path, func(d dimm) error {
		if d.Status.absent() || d.CapacityMiB == 0 {
			return nil
		}

		all = append(all, facts.Module{
			Slot: cmp.Or(facts.Known(d.DeviceLocator), d.ID), SizeMB: int(d.CapacityMiB),
			Type: facts.Known(d.MemoryDeviceType), Speed: int(d.OperatingSpeedMhz),
			Vendor: facts.Known(d.Manufacturer), Part: facts.Known(d.PartNumber), Serial: facts.Known(d.SerialNumber),
		})
		sum += int(d.CapacityMiB)

		return nil
	})
	if err == nil && sum != 0 {
		found.TotalMB, found.Modules = sum, all
	}

	return err
}

func (r *reader) disks(ctx context.Context, c computer) error {
	var (
		all  []facts.Disk
		seen = map[string]bool{} // several controllers may have one drive
	)

	add := func(d drive) error {
		if !d.Status.absent() {
			all = append(all, d.disk())
		}
		return nil
	}

	err := members(ctx, r, c.Storage.Path, func(s storage) error {
		s.Drives = slices.DeleteFunc(s.Drives, func(l link) bool {
			known := seen[l.Path]
			seen[l.Path] = true

			return known
		})

		return each(ctx, r, s.Drives, add)
	})

	// The older resource has the same disks in less detail.
	if (err == nil || errors.Is(err, errAbsent)) && len(all) == 0 {
		err = members(ctx, r, c.SimpleStorage.Path, func(s simpleStorage) error {
			for _, d := range s.Devices {
				if err := add(d); err != nil {
					return err
				}
			}

			return nil
		})
	}

	if err == nil {
		r.facts.Disks = all
	}

	return err
}

func (d drive) disk() facts.Disk {
	disk := facts.Disk{
		SizeBytes: int(d.CapacityBytes), Vendor: facts.Known(d.Manufacturer), Model: facts.Known(d.Model),
		Serial: facts.Known(d.SerialNumber), Place: cmp.Or(d.ID, d.Name),
		Rotational: d.MediaType == string(schemas.HDDMediaType),
	}

	for _, i := range d.Identifiers {
		name := strings.ToLower(strings.TrimSpace(i.DurableName))

		switch {
		case name == "":
		case i.DurableNameFormat == string(schemas.NAADurableNameFormat):
			// As udev writes it.
			name = strings.TrimPrefix(strings.TrimPrefix(name, "naa."), "0x")
			disk.WWN = "0x" + strings.ReplaceAll(name, ":", "")
		case i.DurableNameFormat == string(schemas.EUIDurableNameFormat):
			name = strings.TrimPrefix(strings.TrimPrefix(name, "eui."), "0x")
			disk.WWN = "eui." + strings.NewReplacer(":", "", "-", "").Replace(name)
		}
	}

	return disk
}

func (r *reader) interfaces(ctx context.Context, all link) error {
	var found []facts.Interface

	err := members(ctx, r, all.Path, func(e ethernet) error {
		if !e.Status.absent() && e.EthernetInterfaceType != string(schemas.VirtualEthernetDeviceType) {
			found = append(found, facts.Interface{
				Place: e.ID, MAC: e.mac(), SpeedMbps: int(e.SpeedMbps),
				Carrier: e.LinkStatus == string(schemas.LinkUpLinkStatus),
			})
		}

		return nil
	})
	if err == nil {
		r.facts.Interfaces = found
	}

	return err
}

// mac returns the MAC as Linux writes it.
func (e ethernet) mac() string {
	mac := cmp.Or(facts.Known(e.PermanentMACAddress), facts.Known(e.MACAddress))
	return strings.ReplaceAll(strings.ToLower(mac), "-", ":")
}

// board finds the mainboard among the parts of the chassis.
func (r *reader) board(ctx context.Context, all []link) error {
	if len(all) == 0 {
		return nil
	}

	c, err := read[enclosure](ctx, r, all[0].Path)
	if err != nil {
		return err
	}

	parts, err := read[assembly](ctx, r, c.Assembly.Path)
	if err != nil {
		return err
	}

	for _, part := range parts.Assemblies {
		if part.PhysicalContext == string(schemas.SystemBoardPhysicalContext) {
			s := &r.facts.System
			s.BoardVendor = cmp.Or(facts.Known(part.Vendor), facts.Known(part.Producer))
			s.BoardProduct = cmp.Or(facts.Known(part.Model), facts.Known(part.PartNumber))
			s.BoardSerial = cmp.Or(facts.Known(part.SerialNumber), s.BoardSerial)

			return nil
		}
	}

	return nil
}

// port finds the network port of the BMC: the one with the address that was registered, or else the first.
func (r *reader) port(ctx context.Context, managers []link) error {
	if len(managers) == 0 {
		return nil
	}

	m, err := read[manager](ctx, r, managers[0].Path)
	if err != nil {
		return err
	}

	found := &r.facts.BMC

	return members(ctx, r, m.EthernetInterfaces.Path, func(e ethernet) error {
		for _, a := range slices.Concat(e.IPv4Addresses, e.IPv6Addresses) {
			if found.Address == "" || sameAddr(a.Address, r.bmc.Address) {
				*found = facts.BMCPort{Address: a.Address, MAC: e.mac()}
			}
		}

		return nil
	})
}

func sameAddr(a, b string) bool {
	first, err := netip.ParseAddr(a)
	if err != nil {
		return false
	}
	second, err := netip.ParseAddr(b)

	return err == nil && first.Unmap() == second.Unmap()
}
