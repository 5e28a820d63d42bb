// SPDX-License-Identifier: Apache-2.0

package bmc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/machine"
)

// TestActions: every action, boot device and mode by both protocols, and with both cipher suites.
func TestActions(t *testing.T) {
	t.Parallel()

	new17, new3 := bmctest.NewIPMI(t, 0, types.CipherSuiteID17), bmctest.NewIPMI(t, 0, types.CipherSuiteID3)
	service := bmctest.NewRedfish(t, 1)

	for _, test := range []struct {
		name    string
		bmc     machine.BMC
		machine *bmctest.Machine
	}{
		{"IPMI with SHA-256", new17.BMC, new17.Machine},
		{"IPMI with SHA-1", new3.BMC, new3.Machine},
		{"Redfish", service.BMC, service.System(1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			p := bmc.New()
			is := func(want bmc.Power) {
				t.Helper()

				got, err := p.Power(t.Context(), test.bmc)
				if errtest.None(t, err); got != want {
					t.Errorf("the machine is %s, want %s", got, want)
				}
			}
			act := func(a bmc.Action) {
				t.Helper()
				errtest.None(t, p.Act(t.Context(), test.bmc, a))
			}

			is(bmc.Off)

			if err := p.Act(t.Context(), test.bmc, bmc.Reset); inventory.KindOf(err) != inventory.KindRefused {
				t.Errorf("a machine that is off was reset: %v", err)
			}

			act(bmc.TurnOff)
			act(bmc.Soft)
			act(bmc.Cycle)
			is(bmc.On)
			act(bmc.TurnOn)
			act(bmc.Reset)
			act(bmc.Cycle)
			is(bmc.On)
			test.machine.Lag(1)
			act(bmc.Soft)
			is(bmc.Off)
			act(bmc.TurnOn)
			act(bmc.TurnOff)
			is(bmc.Off)

			want := []string{"On", "ForceRestart", "PowerCycle", "GracefulShutdown", "On", "ForceOff"}
			if got := test.machine.Calls(); !slices.Equal(got, want) {
				t.Errorf("the BMC was told %v, want %v", got, want)
			}

			for _, want := range []bmc.Boot{
				{Device: bmc.PXE, Mode: bmc.UEFI},
				{Device: bmc.Disk, Mode: bmc.BIOS, Lasting: true},
				{Device: bmc.CDROM, Mode: bmc.UEFI, Lasting: true},
				{Device: bmc.Setup, Mode: bmc.BIOS},
				{Device: bmc.Default, Mode: bmc.UEFI},
			} {
				errtest.None(t, p.Boot(t.Context(), test.bmc, want))
				if got := test.machine.Boot(); got != want {
					t.Errorf("the machine boots from %+v, want %+v", got, want)
				}
			}
		})
	}

	t.Cleanup(func() {
		if n := service.Sessions(); n != 0 {
			t.Errorf("%d sessions were left open", n)
		}
	})
}

// TestRefusedOnce: a login that was refused is not tried again, until the password is another one.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()

	ipmi, service := bmctest.NewIPMI(t, 0), bmctest.NewRedfish(t, 1)

	for _, test := range []struct {
		name    string
		bmc     machine.BMC
		touched func() int
	}{
		{"IPMI", ipmi.BMC, ipmi.Datagrams},
		{"Redfish", service.BMC, service.Logins},
	} {
		for _, wrong := range []struct{ name, user, password string }{
			{"password", bmctest.User, "wrong"}, {"user", "nobody", bmctest.Password},
		} {
			t.Run(test.name+" "+wrong.name, func(t *testing.T) {
				p, b := bmc.New(), test.bmc
				b.User, b.Password = wrong.user, wrong.password

				if _, err := p.Power(t.Context(), b); !errors.Is(err, bmc.ErrLogin) {
					t.Fatalf("a wrong %s: %v", wrong.name, err)
				}

				before := test.touched()
				for range 3 {
					if err := p.Act(t.Context(), b, bmc.TurnOn); !errors.Is(err, bmc.ErrLogin) {
						t.Errorf("the second try: %v", err)
					}
				}

				if after := test.touched(); after != before {
					t.Errorf("the BMC was reached %d times more", after-before)
				}

				_, err := p.Power(t.Context(), test.bmc)
				errtest.None(t, err)

				// Somebody has corrected it at the BMC: it is asked once more.
				_, _ = p.Power(t.Context(), b)
				errtest.None(t, p.Retry(t.Context(), b))

				before = test.touched()
				if _, err := p.Power(t.Context(), b); !errors.Is(err, bmc.ErrLogin) || test.touched() == before {
					t.Errorf("after that: %v", err)
				}
			})
		}
	}
}

// TestPasswords: a password is set and proven by a login. With two passwords in the record, each of them is tried once.
func TestPasswords(t *testing.T) {
	t.Parallel()

	ipmi, service := bmctest.NewIPMI(t, 0), bmctest.NewRedfish(t, 1)

	for _, test := range []struct {
		name    string
		bmc     machine.BMC
		accepts func(string) bool
		touched func() int // grows with each login
	}{
		{"IPMI", ipmi.BMC, ipmi.Accepts, ipmi.Datagrams},
		{"Redfish", service.BMC, service.Accepts, service.Logins},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			p, b := bmc.New(), test.bmc
			b.Next = "second-password-20by"
			errtest.None(t, p.SetPassword(t.Context(), b))

			if !test.accepts(b.Next) || test.accepts(b.Password) {
				t.Fatal("the BMC has not taken the new password")
			}

			// The record of before has both, as after a crash. A second attempt finds it set.
			for range 2 {
				p := bmc.New()

				_, err := p.Power(t.Context(), b)
				errtest.None(t, err)
				errtest.None(t, p.SetPassword(t.Context(), b))
			}

			// What was refused is not tried again while the record has it.
			_, err := p.Power(t.Context(), b)
			errtest.None(t, err)

			before := test.touched()
			_, err = p.Power(t.Context(), b)
			errtest.None(t, err)
			once := test.touched() - before

			right := b
			right.Password, right.Next = b.Next, ""
			before = test.touched()
			_, err = p.Power(t.Context(), right)
			errtest.None(t, err)

			if alone := test.touched() - before; once != alone {
				t.Errorf("a login with two passwords took %d, one with the right one alone %d", once, alone)
			}

			// Neither is right.
			wrong := b
			wrong.Password, wrong.Next = "wrong", "wrong too"

			if _, err := p.Power(t.Context(), wrong); !errors.Is(err, bmc.ErrLogin) {
				t.Errorf("two wrong passwords: %v", err)
			}

			before = test.touched()
			for range 3 {
				if err := p.SetPassword(t.Context(), wrong); !errors.Is(err, bmc.ErrLogin) {
					t.Errorf("two wrong passwords: %v", err)
				}
			}

			if after := test.touched(); after != before {
				t.Errorf("the BMC was reached %d times more", after-before)
			}
		})
	}

	// A BMC that only says so.
	forgetful := bmctest.NewRedfish(t, 1)
	forgetful.Forget(true)

	p, b := bmc.New(), forgetful.BMC
	b.Next = "next"

	if err := p.SetPassword(t.Context(), b); inventory.KindOf(err) != inventory.KindUnavailable ||
		!strings.Contains(err.Error(), "has taken the new password, and the BMC refused the login") {
		t.Errorf("a BMC that forgets its password: %v", err)
	}

	forgetful.Forget(false)
	errtest.None(t, p.SetPassword(t.Context(), b))
}

// TestOneSession: callers have one session after the other.
func TestOneSession(t *testing.T) {
	t.Parallel()

	service, p := bmctest.NewRedfish(t, 2), bmc.New()

	var callers sync.WaitGroup

	for i := range 20 {
		b := service.BMC
		b.System = []string{"/redfish/v1/Systems/1", "/redfish/v1/Systems/2"}[i%2]

		callers.Go(func() {
			if _, err := p.Power(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}

	callers.Wait()

	if n, most := service.Logins(), service.MostSessions(); n != 20 || most != 1 {
		t.Errorf("%d logins, and up to %d sessions at once", n, most)
	}
}

// TestSystems: which of the systems of a service is meant.
func TestSystems(t *testing.T) {
	t.Parallel()

	p := bmc.New()
	two, none := bmctest.NewRedfish(t, 2), bmctest.NewRedfish(t, 0)

	second := two.BMC
	second.System = "/redfish/v1/Systems/2"
	errtest.None(t, p.Act(t.Context(), second, bmc.TurnOn))

	if two.System(1).On() || !two.System(2).On() {
		t.Error("another system was turned on")
	}

	third := two.BMC
	third.System = "/redfish/v1/Systems/3"

	for _, test := range []struct {
		bmc  machine.BMC
		kind inventory.Kind
		text string
	}{
		{two.BMC, inventory.KindInvalid, "2 systems: /redfish/v1/Systems/1, /redfish/v1/Systems/2"},
		{none.BMC, inventory.KindNotFound, "no system"},
		{third, inventory.KindNotFound, "no system /redfish/v1/Systems/3"},
		{machine.BMC{Driver: machine.Manual}, inventory.KindRefused, "has no BMC"},
	} {
		_, err := p.Power(t.Context(), test.bmc)
		if inventory.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%v, want %s with %q", err, test.kind, test.text)
		}
	}
}

// TestUnreachable: what does not answer.
func TestUnreachable(t *testing.T) {
	t.Parallel()

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	closed.Close()
	port := closed.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // of a TCP listener

	for _, b := range []machine.BMC{
		{Driver: machine.Redfish, Address: "127.0.0.1", Port: port},
		{Driver: machine.IPMI, Address: "127.0.0.1", Port: port},
	} {
		_, err := bmc.New().Power(t.Context(), b)
		if inventory.KindOf(err) != inventory.KindUnavailable || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: %v", b.Driver, err)
		}
	}

	// A certificate of its own making is fine, unless it is to be verified.
	strict := bmctest.NewRedfish(t, 1).BMC
	strict.Verify = true

	if _, err := bmc.New().Power(t.Context(), strict); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the certificate was not verified: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := bmc.New().Power(ctx, bmctest.NewIPMI(t, 0).BMC); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
}

// TestGarbage: answers that are not Redfish end in an error that says so, and take nobody elsewhere.
func TestGarbage(t *testing.T) {
	t.Parallel()

	var strayed atomic.Int64

	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	t.Cleanup(elsewhere.Close)

	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s) }
	}
	root := func(systems string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost:
				w.Header().Set("X-Auth-Token", "token")
				w.WriteHeader(http.StatusCreated)
			case r.URL.Path == "/redfish/v1/":
				io.WriteString(w, `{"Systems":{"@odata.id":"`+systems+`"},"Links":{"Sessions":{"@odata.id":"/s"}}}`)
			default:
				http.NotFound(w, r)
			}
		}
	}

	for name, test := range map[string]struct {
		answer http.HandlerFunc
		text   string
	}{
		"HTML":              {text("<html>"), "does not speak Redfish"},
		"nothing":           {text(""), "does not speak Redfish"},
		"another shape":     {text(`{"Systems":[1]}`), "does not speak Redfish"},
		"deep":              {text(strings.Repeat("[", 100000)), "does not speak Redfish"},
		"long":              {text(`"` + strings.Repeat("a", 5<<20)), "does not speak Redfish"},
		"hostile text":      {text("\x1b[2J\x00"), "does not speak Redfish"},
		"no path":           {http.NotFound, "does not speak Redfish"},
		"redirects":         {http.RedirectHandler("/redfish/v1/", http.StatusFound).ServeHTTP, "redirects"},
		"away by redirect":  {http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, "another one"},
		"away by a link":    {root("@" + strings.TrimPrefix(elsewhere.URL, "http://") + "/x"), "another one"},
		"away by authority": {root(".example.com/x"), ""},
		"a fault": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "\x1b[2Jbroken", http.StatusInternalServerError)
		}, "500 Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			service := bmctest.NewRedfish(t, 1)
			service.Answer(test.answer)

			_, err := bmc.New().Power(t.Context(), service.BMC)
			if err == nil || !strings.Contains(err.Error(), test.text) || errors.Is(err, bmc.ErrLogin) {
				t.Fatalf("%v, want %q", err, test.text)
			}

			if strings.ContainsAny(err.Error(), "\x1b\x00\n") || len(err.Error()) > 600 {
				t.Errorf("the message quotes too much: %q", err)
			}
		})
	}

	t.Cleanup(func() {
		if n := strayed.Load(); n != 0 {
			t.Errorf("another service was asked %d times", n)
		}
	})
}

// TestMangled: IPMI answers that were changed on the way are errors, and never end the process.
func TestMangled(t *testing.T) {
	t.Parallel()

	for name, mangle := range map[string]func([]byte) []byte{
		"cut to its header": func(p []byte) []byte { return p[:4] },
		"cut to half":       func(p []byte) []byte { return p[:len(p)/2] },
		"cut by one":        func(p []byte) []byte { return p[:len(p)-1] },
		"empty payload": func(p []byte) []byte {
			if len(p) > 16 {
				p[14], p[15] = 0, 0
			}
			return p
		},
		"short payload": func(p []byte) []byte {
			if len(p) > 16 {
				p[14], p[15] = 16, 0
			}
			return p
		},
		"payload changed": func(p []byte) []byte {
			if len(p) > 40 {
				p[len(p)-20] ^= 0xff
				p[33] ^= 0xff
			}
			return p
		},
		"not encrypted": func(p []byte) []byte {
			p[5] &= 0x3f
			return p
		},
		"zeros": func(p []byte) []byte { return make([]byte, len(p)) },
		"text":  func([]byte) []byte { return []byte("HTTP/1.0 400 Bad Request\r\n\r\n") },
	} {
		// From the first answer on, or once the session is open.
		for _, from := range []int{0, 3} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()

				b := bmctest.NewIPMI(t, 0, types.CipherSuiteID3)
				b.Mangle(from, mangle)

				if err := bmc.Hasty().Act(t.Context(), b.BMC, bmc.TurnOn); err == nil {
					t.Error("an answer that was mangled is taken for one")
				}
			})
		}
	}
}
