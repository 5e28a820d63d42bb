// SPDX-License-Identifier: Apache-2.0

package bmctest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ipmi "github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/machine"
)

// IPMI is a BMC that speaks IPMI 2.0.
type IPMI struct {
	Machine *Machine
	BMC     machine.BMC // how it is reached

	conn  *datagrams
	users *ipmi.UserStore
}

// userID is the number of the user.
const userID = 2

// Accepts reports whether the user has the password.
func (b *IPMI) Accepts(password string) bool {
	user, err := b.users.Get(userID)
	return err == nil && user.VerifyPassword([]byte(password))
}

// NewIPMI starts a BMC with a machine that is off. It answers after the delay, with these cipher suites; none: all.
func NewIPMI(t TB, delay time.Duration, suites ...types.CipherSuiteID) *IPMI {
	t.Helper()

	listener, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}

	addr, _ := listener.LocalAddr().(*net.UDPAddr)
	b := &IPMI{
		Machine: &Machine{},
		BMC: machine.BMC{
			Driver: machine.IPMI, Address: "127.0.0.1", Port: addr.Port, User: User, Password: Password,
		},
		conn: &datagrams{Conn: udp.Wrap(listener), delay: delay},
	}

	h := &hardware{HAL: mock.New(), machine: b.Machine}
	simulated := ipmi.New(ipmi.DeviceInfo{IPMIVersion: 0x20}, [16]byte{}, h)

	user, err := simulated.Users.Add(userID, User)
	if err != nil {
		t.Fatal(err)
	}
	user.SetPassword([]byte(Password))
	user.Enabled = true
	user.ChannelAccess[1] = ipmi.UserChannelAccess{MaxPrivilege: ipmi.PrivilegeLevelAdministrator, Enabled: true}

	b.users = simulated.Users

	var options []server.ServerOption
	if len(suites) > 0 {
		options = append(options, server.WithCipherSuites(suites))
	}

	s := server.NewServer(simulated, b.conn, options...)
	done := make(chan struct{})

	go func() {
		defer close(done)
		s.Serve(context.Background()) //nolint:errcheck // it ends with the test
	}()

	t.Cleanup(func() {
		s.Close()
		<-done
	})

	return b
}

// Datagrams returns how many datagrams have reached the BMC.
func (b *IPMI) Datagrams() int { return int(b.conn.received.Load()) }

// Mangle has f change every answer, after a number of them.
func (b *IPMI) Mangle(after int, f func([]byte) []byte) {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.conn.mangle, b.conn.after = f, after
}

// datagrams are those of one BMC.
type datagrams struct {
	*udp.Conn

	delay    time.Duration
	received atomic.Int64

	mu     sync.Mutex
	mangle func([]byte) []byte
	after  int
}

func (d *datagrams) ReadFrom(p []byte) (int, net.Addr, error) {
	n, addr, err := d.Conn.ReadFrom(p)
	if err == nil {
		d.received.Add(1)
	}

	return n, addr, err
}

func (d *datagrams) WriteTo(p []byte, addr net.Addr) (int, error) {
	if d.delay > 0 {
		<-time.After(d.delay)
	}
	d.mu.Lock()
	if d.after--; d.mangle != nil && d.after < 0 {
		p = d.mangle(slices.Clone(p))
	}
	d.mu.Unlock()

	return d.Conn.WriteTo(p, addr)
}

// hardware is the machine as the server of go-ipmi sees it.
type hardware struct {
	*mock.HAL

	machine *Machine
}

func (h *hardware) Chassis() hal.ChassisHAL {
	return &chassis{Chassis: &mock.Chassis{}, machine: h.machine}
}

type chassis struct {
	*mock.Chassis

	machine *Machine
}

var errState = errors.New("not in this state")

func (c *chassis) do(call string) error {
	if !c.machine.do(call) {
		return errState
	}
	return nil
}

func (c *chassis) PowerState(context.Context) (bool, error) { return c.machine.power(), nil }
func (c *chassis) PowerCycle(context.Context) error         { return c.do("PowerCycle") }
func (c *chassis) ColdReset(context.Context) error          { return c.do("ForceRestart") }

// The server has the hardware shut down softly by WarmReset.
func (c *chassis) WarmReset(context.Context) error { return c.do("GracefulShutdown") }

func (c *chassis) SetPower(_ context.Context, on bool) error {
	if on {
		return c.do("On")
	}
	return c.do("ForceOff")
}

func (c *chassis) SetBootFlags(_ context.Context, f *types.BootOptionParam_BootFlags) error {
	b := bmc.Boot{Lasting: f.Persist, Mode: bmc.BIOS}
	if f.BIOSBootType == types.BIOSBootTypeEFI {
		b.Mode = bmc.UEFI
	}

	switch f.BootDeviceSelector {
	case types.BootDeviceSelectorForcePXE:
		b.Device = bmc.PXE
	case types.BootDeviceSelectorForceHardDrive:
		b.Device = bmc.Disk
	case types.BootDeviceSelectorForceCDROM:
		b.Device = bmc.CDROM
	case types.BootDeviceSelectorForceBIOSSetup:
		b.Device = bmc.Setup
	case types.BootDeviceSelectorNoOverride:
		b.Device = bmc.Default
	}
	c.machine.setBoot(b)

	return nil
}
