// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
)

// A datagram may be lost: each one is sent up to three times.
const (
	datagramTimeout = time.Second
	datagramRetries = 2
)

// passwordLimit bounds the password of an IPMI user, in bytes.
const passwordLimit = 20

type cipherSuite = types.CipherSuiteID

// suites are the cipher suites that are tried, the strongest first: SHA-256, and SHA-1, each with AES.
var suites = []cipherSuite{types.CipherSuiteID17, types.CipherSuiteID3}

// ipmi is a session by IPMI 2.0 over the network.
type ipmi struct {
	bmc    machine.BMC
	client *client.Client
	conn   *datagrams
	raised bool // the session has the rights of its user, not only those to read
}

// connectIPMI opens a session with the cipher suite that worked before, or else the first one that works.
func connectIPMI(ctx context.Context, b machine.BMC, g *gate) (session, error) {
	if len(b.Password) > passwordLimit {
		return nil, inventory.Errorf(inventory.KindInvalid,
			"the password of the BMC at %s has %d bytes; one of an IPMI user has at most %d",
			hostPort(b), len(b.Password), passwordLimit)
	}

	tried := slices.Clone(suites)
	if i := slices.Index(tried, g.suite); i > 0 {
		tried[0], tried[i] = tried[i], tried[0]
	}

	var last error

	for _, suite := range tried {
		s, err := openIPMI(ctx, b, suite, g.datagram)
		if err == nil {
			g.suite = suite
			return s, nil
		}
		last = err

		// The other suite is no remedy for a wrong password, and one failed login more.
		if errors.Is(err, ErrLogin) || ctx.Err() != nil || inventory.KindOf(err) == inventory.KindInvalid {
			break
		}
	}

	return nil, last
}

// openIPMI opens a session with a cipher suite.
func openIPMI(ctx context.Context, b machine.BMC, suite cipherSuite, timeout time.Duration) (*ipmi, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", hostPort(b))
	if err != nil {
		return nil, unreachable(b, err)
	}

	guarded := &datagrams{Conn: conn}

	c, err := client.NewClient(b.Address, b.Port, b.User, b.Password)
	if err != nil {
		conn.Close()
		return nil, inventory.Errorf(inventory.KindInvalid, "the user of the BMC at %s: %s", hostPort(b), err)
	}
	c.WithUDPProxy(guarded).WithTimeout(timeout).WithRetry(datagramRetries).WithCipherSuiteID(suite).
		WithMaxPrivilegeLevel(types.PrivilegeLevelAdministrator)

	// Only whether it panics matters.
	guarded.parse = func(msg []byte) { _ = c.ParseRmcpResponse(ctx, msg, types.CommandNone, ignored{}) }

	s := &ipmi{bmc: b, client: c, conn: guarded}
	if err := s.login(ctx, suite); err != nil {
		conn.Close()
		return nil, err
	}
	guarded.active.Store(true)

	return s, nil
}

// login opens the session: the steps of client.Connect20, whose errors do not tell a wrong password from the rest.
func (s *ipmi) login(ctx context.Context, suite cipherSuite) error {
	opened := func(ctx context.Context) error {
		r, err := s.client.OpenSession(ctx)
		if err != nil {
			return err
		}

		// A BMC, or somebody in between, must not choose weaker ones.
		auth, integrity, crypt, _ := types.GetCipherSuiteAlgorithms(suite)
		if types.AuthAlg(r.AuthAlg) != auth || types.IntegrityAlg(r.IntegrityAlg) != integrity ||
			types.CryptAlg(r.CryptAlg) != crypt {
			return garbage(s.bmc, fmt.Sprintf("it answered cipher suite %d with other algorithms", suite))
		}

		return nil
	}

	steps := []func(context.Context) error{
		opened,
		func(ctx context.Context) error { _, err := s.client.RAKPMessage1(ctx); return err },
		func(ctx context.Context) error { _, err := s.client.RAKPMessage3(ctx); return err },
	}
	for _, step := range steps {
		if err := s.call(ctx, step); err != nil {
			return err
		}
	}

	return nil
}

// call makes a call of the library, which answers of a BMC may bring to panic, and translates its error.
func (s *ipmi) call(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = garbage(s.bmc, fmt.Sprint(p))
		}
	}()

	err = f(ctx)

	var (
		ours     *inventory.Error
		status   *types.RmcpStatusError
		response *types.ResponseError
		network  net.Error
	)

	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return err
	case errors.Is(err, client.ErrRAKPAuthentication):
		return refused(s.bmc, "wrong password")
	case errors.As(err, &status):
		return s.status(status.StatusCode())
	case errors.As(err, &response):
		return s.completion(response)
	case ctx.Err() != nil, errors.As(err, &network):
		return unreachable(s.bmc, err)
	case s.conn.dropped.Load() > 0 || s.conn.received.Load() > 0:
		return garbage(s.bmc, err.Error())
	}

	return unreachable(s.bmc, err)
}

// status is the error of a login with this status.
func (s *ipmi) status(code types.RmcpStatusCode) error {
	switch code {
	case types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeInvalidNameLength:
		return refused(s.bmc, "no such user")
	case types.RmcpStatusCodeInvalidRole, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel:
		return refused(s.bmc, "the user may not log in as an administrator")
	case types.RmcpStatusCodeInvalidIntegrityCheckValue:
		return refused(s.bmc, "wrong password")
	case types.RmcpStatusCodeNoResToCreateSess, types.RmcpStatusCodeNoResToCreateSessAtRole:
		return inventory.Errorf(inventory.KindBusy, "the BMC at %s has no free session", hostPort(s.bmc)).
			Do("end the sessions of others, or wait until they time out")
	}

	return unable(s.bmc, code.String())
}

// Completion codes of IPMI.
const (
	codeInsufficientPrivilege = 0xd4
	codeNotInPresentState     = 0xd5
)

// completion is the error of a command with this answer.
func (s *ipmi) completion(r *types.ResponseError) error {
	switch r.CompletionCode() {
	case codeInsufficientPrivilege:
		return unprivileged(s.bmc, "Operator")
	case codeNotInPresentState:
		return unable(s.bmc, "not in its present state")
	}

	return unable(s.bmc, r.Error())
}

func (s *ipmi) power(ctx context.Context) (power Power, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		r, err := s.client.GetChassisStatus(ctx)
		if power = Off; err == nil && r.PowerIsOn {
			power = On
		}
		return err
	})

	return power, err
}

// raise gives the session the rights to change things.
func (s *ipmi) raise(ctx context.Context) error {
	if s.raised {
		return nil
	}
	s.raised = true

	return s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.SetSessionPrivilegeLevel(ctx, types.PrivilegeLevelAdministrator)
		return err
	})
}

var controls = map[Action]chassis.ChassisControl{
	TurnOn:  chassis.ChassisControlPowerUp,
	TurnOff: chassis.ChassisControlPowerDown,
	Cycle:   chassis.ChassisControlPowerCycle,
	Reset:   chassis.ChassisControlHardReset,
	Soft:    chassis.ChassisControlSoftShutdown,
}

func (s *ipmi) act(ctx context.Context, a Action) error {
	if err := s.raise(ctx); err != nil {
		return err
	}

	return s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.ChassisControl(ctx, controls[a])
		return err
	})
}

var selectors = map[Device]types.BootDeviceSelector{
	Default: types.BootDeviceSelectorNoOverride,
	PXE:     types.BootDeviceSelectorForcePXE,
	Disk:    types.BootDeviceSelectorForceHardDrive,
	CDROM:   types.BootDeviceSelectorForceCDROM,
	Setup:   types.BootDeviceSelectorForceBIOSSetup,
}

func (s *ipmi) boot(ctx context.Context, b Boot) error {
	if err := s.raise(ctx); err != nil {
		return err
	}

	// A BMC may forget the device if the machine does not boot within a minute. Not every BMC can be told not to.
	_ = s.call(ctx, func(ctx context.Context) error {
		return s.client.SetSystemBootOptionsParamFor(ctx, &types.BootOptionParam_BMCBootFlagValidBitClear{
			DontClearOnCommandReceivedTimeout: true,
		})
	})

	return s.call(ctx, func(ctx context.Context) error {
		mode := types.BIOSBootTypeEFI
		if b.Mode == BIOS {
			mode = types.BIOSBootTypeLegacy
		}
		return s.client.SetBootDevice(ctx, selectors[b.Device], mode, b.Lasting)
	})
}

// thisChannel is the channel of the session.
const thisChannel = 0x0e

// setPassword changes the password of the user of the session.
func (s *ipmi) setPassword(ctx context.Context, password string) error {
	if err := s.raise(ctx); err != nil {
		return err
	}

	id := uint8(1) // of the user without a name

	if s.bmc.User != "" {
		err := s.call(ctx, func(ctx context.Context) error {
			users, err := s.client.GetUsers(ctx, thisChannel)

			i := slices.IndexFunc(users, func(u *app.User) bool { return u.Name == s.bmc.User })
			switch {
			case err != nil:
				return err
			case i < 0:
				return unable(s.bmc, "it does not list "+name(s.bmc.User))
			}
			id = users[i].ID

			return nil
		})
		if err != nil {
			return asAdministrator(s.bmc, err)
		}
	}

	return asAdministrator(s.bmc, s.call(ctx, func(ctx context.Context) error {
		_, err := s.client.SetUserPassword(ctx, id, password, true)
		return err
	}))
}

// close ends the session. A BMC has few of them, and a lost one lasts a minute.
func (s *ipmi) close(ctx context.Context) {
	// The caller may have given up; the BMC still has to be told.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), datagramTimeout)
	defer cancel()

	_ = s.call(ctx, s.client.Close)
}

// datagrams are those of one session. What the library cannot read is dropped: it would panic, partly in goroutines of
// its own.
type datagrams struct {
	net.Conn

	parse             func([]byte)
	active            atomic.Bool // the session is open: all that comes is encrypted and signed
	received, dropped atomic.Int64
}

// Dial returns the connection: the library takes it for a proxy.
func (d *datagrams) Dial(string, string) (net.Conn, error) { return d, nil }

// Read returns the next datagram that can be read.
func (d *datagrams) Read(p []byte) (int, error) {
	for {
		n, err := d.Conn.Read(p)
		if err != nil {
			return n, err
		}

		if d.readable(p[:n]) {
			d.received.Add(1)
			return n, nil
		}
		d.dropped.Add(1)
	}
}

// sessionFlags are the type of a payload (IPMI), and that it is encrypted and signed, in the header of RMCP+.
const (
	sessionFlags = 0xc0
	authRMCPPlus = 0x06
)

func (d *datagrams) readable(msg []byte) (ok bool) {
	if d.active.Load() && (len(msg) < 6 || msg[4] != authRMCPPlus || msg[5] != sessionFlags) {
		return false
	}

	defer func() { ok = recover() == nil }()
	d.parse(slices.Clone(msg))

	return true
}

// ignored is an answer that nobody reads.
type ignored struct{}

func (ignored) Unpack([]byte) error { return nil }
func (ignored) Format() string      { return "" }
