// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/cluster/inventory/facts"
)

// interfaces reads the network ports that have a device. A container has none of these: there, all ports that look like
// Ethernet count.
func (c *collector) interfaces() error {
	const class = "sys/class/net"

	names, err := c.names(class)
	if err != nil {
		return err
	}

	var virtual []facts.Interface

	for _, name := range names {
		dir := filepath.Join(class, name)

		const ethernet = "1"
		if name == "lo" || c.read(dir, "type") != ethernet {
			continue
		}

		found := facts.Interface{
			Name: name, MAC: strings.ToLower(c.read(dir, "bonding_slave/perm_hwaddr")),
			Carrier: c.read(dir, "carrier") == "1", Driver: c.link(dir, "device/driver"),
			PCI: c.pciOf(filepath.Join(dir, "device")),
		}
		if found.MAC == "" {
			found.MAC = strings.ToLower(c.read(dir, "address"))
		}
		if found.Carrier {
			found.SpeedMbps = c.number(dir, "speed")
		}

		if c.exists(dir, "device") {
			c.facts.Interfaces = append(c.facts.Interfaces, found)
		} else if !c.exists(dir, "bridge") && !c.exists(dir, "bonding") {
			virtual = append(virtual, found)
		}
	}

	if len(c.facts.Interfaces) == 0 {
		c.facts.Interfaces = virtual
	}

	return nil
}

// pciOf returns the address of the device on PCI that a device is, or belongs to, as one of virtio does; "": none.
func (c *collector) pciOf(device string) string {
	path, err := filepath.EvalSymlinks(c.path(device))
	if err != nil {
		return ""
	}

	const above = 3
	for range above {
		if bus, err := os.Readlink(filepath.Join(path, "subsystem")); err == nil && filepath.Base(bus) == "pci" {
			return filepath.Base(path)
		}
		path = filepath.Dir(path)
	}

	return ""
}

// toolTimeout bounds each program that is asked.
const toolTimeout = 5 * time.Second

// run returns the output of a program of the machine. What is not installed there has nothing to say.
func (c *collector) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	if c.root != "/" {
		return nil, nil
	}

	path, err := exec.LookPath(program)
	if err != nil {
		return nil, nil
	}

	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()

	var out bytes.Buffer

	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the arguments are constants
	cmd.Stdout, cmd.WaitDelay = &out, time.Second

	if err := cmd.Run(); err != nil {
		return nil, errors.New(program + ": " + err.Error())
	}

	return out.Bytes(), nil
}

// neighbours asks lldpd, where it runs.
func (c *collector) neighbours(ctx context.Context) error {
	out, err := c.run(ctx, "lldpctl", "-f", "json0")
	if err != nil || len(out) == 0 {
		return err
	}

	by, err := parseLLDP(out)
	for i := range c.facts.Interfaces {
		c.facts.Interfaces[i].Neighbour = by[c.facts.Interfaces[i].Name]
	}

	return err
}

// lldpValue is a value as lldpctl prints it: in a list.
type lldpValue []struct {
	Value string `json:"value"`
}

func (v lldpValue) String() string {
	if len(v) == 0 {
		return ""
	}
	return v[0].Value
}

// parseLLDP returns the neighbours by the names of the ports. Of several at one port, the first counts.
func parseLLDP(out []byte) (map[string]*facts.Neighbour, error) {
	var answer struct {
		LLDP []struct {
			Interface []struct {
				Name    string `json:"name"`
				Chassis []struct {
					ID   lldpValue `json:"id"`
					Name lldpValue `json:"name"`

					Capabilities []struct {
						Type    string `json:"type"`
						Enabled bool   `json:"enabled"`
					} `json:"capability"`
				} `json:"chassis"`
				Port []struct {
					ID          lldpValue `json:"id"`
					Description lldpValue `json:"descr"`
				} `json:"port"`
			} `json:"interface"`
		} `json:"lldp"`
	}

	err := json.Unmarshal(out, &answer)
	by := map[string]*facts.Neighbour{}

	for _, l := range answer.LLDP {
		for _, i := range l.Interface {
			if by[i.Name] != nil || len(i.Chassis) == 0 || len(i.Port) == 0 {
				continue
			}

			n := &facts.Neighbour{
				Name: i.Chassis[0].Name.String(), Chassis: i.Chassis[0].ID.String(),
				Port: i.Port[0].ID.String(), Description: i.Port[0].Description.String(),
			}
			for _, c := range i.Chassis[0].Capabilities {
				n.Forwards = n.Forwards || c.Enabled && (c.Type == "Bridge" || c.Type == "Router")
			}
			by[i.Name] = n
		}
	}

	return by, err
}

// bmc asks the BMC of the machine for its own network port, by ipmitool where that is installed.
func (c *collector) bmc(ctx context.Context) error {
	if !c.exists("dev/ipmi0") {
		return nil
	}

	out, err := c.run(ctx, "ipmitool", "lan", "print")
	c.facts.BMC = parseLAN(out)

	return err
}

// parseLAN reads what ipmitool lan print says.
func parseLAN(out []byte) (b facts.BMCPort) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")

		switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
		case "IP Address":
			if value != "0.0.0.0" {
				b.Address = value
			}
		case "MAC Address":
			b.MAC = strings.ToLower(value)
		}
	}

	return b
}
