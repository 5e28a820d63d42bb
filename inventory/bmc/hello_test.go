// SPDX-License-Identifier: Apache-2.0

package bmc_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/bmc"
	"github.com/contiv/cluster/inventory/bmc/bmctest"
	"github.com/contiv/cluster/inventory/machine"
)

// TestGreet asks BMCs what they are. Nobody logs in.
func TestGreet(t *testing.T) {
	t.Parallel()

	if _, err := bmc.Greet(t.Context(), bmctest.NewIPMI(t, 0).BMC); err != nil {
		t.Errorf("IPMI: %v", err)
	}

	r := bmctest.NewRedfish(t, 1)
	if hello, err := bmc.Greet(t.Context(), r.BMC); err != nil || hello.UUID != "92384634-2938-2342-8820-489239905423" {
		t.Errorf("Redfish: %+v, %v", hello, err)
	}

	if r.Logins() > 0 {
		t.Errorf("%d logins", r.Logins())
	}

	for name, answer := range map[string]http.HandlerFunc{
		"another service": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"name":"shop"}`)) },
		"a page":          func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`<html>`)) },
		"a wall":          func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"without end": func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`{"RedfishVersion":"` + strings.Repeat("1", 1<<20)))
		},
		"elsewhere": func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "http://192.0.2.1/redfish/v1/", http.StatusFound)
		},
	} {
		r.Answer(answer)

		if hello, err := bmc.Greet(t.Context(), r.BMC); err == nil {
			t.Errorf("%s is taken for a BMC: %+v", name, hello)
		}
	}
}

// TestGreetHostile has a service other than IPMI answer pings.
func TestGreetHostile(t *testing.T) {
	t.Parallel()

	for _, answer := range []string{
		"", "\x06", "\x06\x00\xff\x06\x00\x00\x11\xbe\x40\x00\x00\xff", strings.Repeat("\xff", 2000),
	} {
		listener, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })

		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := listener.ReadFrom(buf)
				if err != nil {
					return
				}
				listener.WriteTo([]byte(answer), from)
			}
		}()

		addr, _ := listener.LocalAddr().(*net.UDPAddr)
		b := machine.BMC{Driver: machine.IPMI, Address: "127.0.0.1", Port: addr.Port}

		if _, err := bmc.Greet(t.Context(), b); err == nil {
			t.Errorf("%q is taken for a BMC", answer)
		}
	}
}
