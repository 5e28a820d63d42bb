// SPDX-License-Identifier: Apache-2.0

package bmctest

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
)

// Put has the BMC answer with a resource at a path; nil: it has none there. A collection follows its members.
func (r *Redfish) Put(path string, resource map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if resource == nil {
		delete(r.resources, path)
		return
	}
	r.put(path, "", resource)
}

// put sets a resource, with what every resource has.
func (r *Redfish) put(at, kind string, resource object) {
	o := object{"@odata.id": at, "Id": path.Base(at), "Name": path.Base(at)}
	if kind != "" {
		o["@odata.type"] = kind
	}

	maps.Copy(o, resource)
	r.resources[at] = o
}

// The paths of the hardware.
const (
	chassisPath  = rootPath + "Chassis"
	managersPath = rootPath + "Managers"
)

// collections are the types of the collections below a system, a chassis and a manager, by the last part of the path.
var collections = map[string]string{
	"Processors":         "#ProcessorCollection.ProcessorCollection",
	"Memory":             "#MemoryCollection.MemoryCollection",
	"Storage":            "#StorageCollection.StorageCollection",
	"SimpleStorage":      "#SimpleStorageCollection.SimpleStorageCollection",
	"EthernetInterfaces": "#EthernetInterfaceCollection.EthernetInterfaceCollection",
	"Chassis":            "#ChassisCollection.ChassisCollection",
	"Managers":           "#ManagerCollection.ManagerCollection",
}

// equip gives a system its hardware: two processors and an accelerator, three memory modules of 16 GiB and an empty
// slot, two drives of which two controllers have one, and two network ports.
func (r *Redfish) equip(n int) {
	system, chassis, bmc := systemPath(n), fmt.Sprint(chassisPath, "/", n), fmt.Sprint(managersPath, "/", n)
	enabled, absent := object{"State": "Enabled", "Health": "OK"}, object{"State": "Absent"}

	for _, socket := range []string{"CPU.1", "CPU.2"} {
		r.put(system+"/Processors/"+socket, "#Processor.v1_17_0.Processor", object{
			"ProcessorType": "CPU", "InstructionSet": "x86-64", "Manufacturer": "Contoso", "Model": "Contoso 9000",
			"TotalCores": 8, "TotalThreads": 16, "Status": enabled, "Socket": socket,
		})
	}
	r.put(system+"/Processors/GPU.1", "#Processor.v1_17_0.Processor", object{
		"ProcessorType": "GPU", "Model": "Contoso 80G", "TotalCores": 6912, "Status": enabled,
	})

	for i, slot := range []string{"A1", "A2", "A3"} {
		r.put(system+"/Memory/DIMM."+slot, "#Memory.v1_18_0.Memory", object{
			"DeviceLocator": "DIMM " + slot, "MemoryType": "DRAM", "MemoryDeviceType": "DDR4", "CapacityMiB": 16384,
			"OperatingSpeedMhz": 2933, "Manufacturer": "Hynix", "PartNumber": "HMA82 ", "Status": enabled,
			"SerialNumber": fmt.Sprintf("m%d%d", n, i+1),
		})
	}
	r.put(system+"/Memory/DIMM.A4", "#Memory.v1_18_0.Memory", object{
		"DeviceLocator": "DIMM A4", "CapacityMiB": nil, "Status": absent,
	})

	var drives []object
	for i, media := range []string{"SSD", "HDD"} {
		at := fmt.Sprintf("%s/Drives/Bay.%d", chassis, i)
		drives = append(drives, link(at))
		r.put(at, "#Drive.v1_18_0.Drive", object{
			"CapacityBytes": 480103981056, "Manufacturer": "Contoso", "Model": "D" + media, "MediaType": media,
			"SerialNumber": fmt.Sprintf("d%d%d", n, i+1), "Status": enabled,
			"Identifiers": []object{{
				"DurableName": fmt.Sprintf("5000C500A1B2C%d%02d", i, n), "DurableNameFormat": "NAA",
			}},
		})
	}
	r.put(system+"/Storage/1", "#Storage.v1_15_1.Storage", object{"Drives": drives, "Status": enabled})
	r.put(system+"/Storage/2", "#Storage.v1_15_1.Storage", object{"Drives": drives[:1], "Status": enabled})
	r.put(system+"/SimpleStorage/1", "#SimpleStorage.v1_3_1.SimpleStorage", object{
		"Devices": []object{
			{
				"Name": "Bay.0", "Manufacturer": "Contoso", "Model": "DSSD", "CapacityBytes": 480103981056,
				"Status": enabled,
			},
			{"Name": "Bay.1", "Status": absent},
		},
	})

	for i, up := range []string{"LinkUp", "LinkDown"} {
		r.put(fmt.Sprintf("%s/EthernetInterfaces/NIC.%d", system, i+1), "#EthernetInterface.v1_12_1.EthernetInterface",
			object{
				"PermanentMACAddress": fmt.Sprintf("52:54:00:AA:%02X:%02X", n, i+1),
				"MACAddress":          fmt.Sprintf("02:00:00:00:%02X:%02X", n, i+1),
				"LinkStatus":          up, "SpeedMbps": 25000, "Status": enabled,
			})
	}

	r.put(chassis, "#Chassis.v1_25_0.Chassis", object{
		"ChassisType": "RackMount", "Assembly": link(chassis + "/Assembly"),
		"Links": object{"ComputerSystems": []object{link(system)}, "ManagedBy": []object{link(bmc)}},
	})
	r.put(chassis+"/Assembly", "#Assembly.v1_5_1.Assembly", object{
		"Assemblies": []object{
			{"MemberId": "0", "PhysicalContext": "Fan", "Vendor": "Fabrikam"},
			{
				"MemberId": "1", "PhysicalContext": "SystemBoard", "Vendor": "Contoso", "Model": "Board 35",
				"SerialNumber": fmt.Sprint("b", n),
			},
		},
	})
	r.put(bmc, "#Manager.v1_19_1.Manager", object{
		"ManagerType": "BMC", "EthernetInterfaces": link(bmc + "/EthernetInterfaces"),
		"Links": object{"ManagerForServers": []object{link(system)}},
	})
	for i, addr := range []string{"127.9.9.9", "127.0.0.1"} {
		r.put(fmt.Sprintf("%s/EthernetInterfaces/%d", bmc, i+1), "#EthernetInterface.v1_12_1.EthernetInterface", object{
			"MACAddress": fmt.Sprintf("52:54:00:BB:%02X:%02X", n, i+1), "IPv4Addresses": []object{{"Address": addr}},
		})
	}
}

// hardwareLinks are the links of a system to its hardware, and what it has in short.
func hardwareLinks(n int) object {
	at := systemPath(n)

	return object{
		"BiosVersion":        "1.4.2",
		"Processors":         link(at + "/Processors"),
		"Memory":             link(at + "/Memory"),
		"Storage":            link(at + "/Storage"),
		"SimpleStorage":      link(at + "/SimpleStorage"),
		"EthernetInterfaces": link(at + "/EthernetInterfaces"),
		"ProcessorSummary":   object{"Count": 2, "Model": "Contoso 9000", "LogicalProcessorCount": 32},
		"MemorySummary":      object{"TotalSystemMemoryGiB": 48},
		"Links": object{
			"Chassis":   []object{link(fmt.Sprint(chassisPath, "/", n))},
			"ManagedBy": []object{link(fmt.Sprint(managersPath, "/", n))},
		},
	}
}

// resource answers with a resource, or with a collection of those below the path.
func (r *Redfish) resource(w http.ResponseWriter, q *http.Request) {
	at := strings.TrimSuffix(q.URL.Path, "/")

	r.mu.Lock()
	resource, there := r.resources[at]

	var members []string
	for path := range r.resources {
		if rest, below := strings.CutPrefix(path, at+"/"); below && !strings.Contains(rest, "/") {
			members = append(members, path)
		}
	}
	r.mu.Unlock()

	kind, isCollection := collections[path.Base(at)]

	switch {
	case there:
		reply(w, http.StatusOK, resource)
	case isCollection:
		slices.Sort(members)
		reply(w, http.StatusOK, collection(at, kind, members))
	default:
		refuse(w, http.StatusNotFound, "ResourceMissingAtURI", "The resource at the URI "+q.URL.Path+" was not found.")
	}
}
