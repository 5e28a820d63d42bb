// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/rollout"
	"github.com/contiv/cluster/management/state"
)

// TestAsk: no redirect is followed, and an error has no URL.
func TestAsk(t *testing.T) {
	t.Parallel()

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/health", http.StatusFound)
		}
	}))

	for path, want := range map[string]int{"/health": http.StatusOK, "/moved": http.StatusFound} {
		if status, err := ask(t.Context(), client(nil), server.URL+path); status != want || err != nil {
			t.Errorf("%s: %d, %v", path, status, err)
		}
	}

	server.Close()

	_, err := ask(t.Context(), client(nil), server.URL+"/health")
	if err == nil || strings.Contains(err.Error(), "/health") {
		t.Errorf("%v", err)
	}
}

// TestAskThisHost: a check reaches no service that may trust this host, by whatever name or address the node
// reports itself; the node of the manager is asked under the address of the instance.
func TestAskThisHost(t *testing.T) {
	t.Parallel()

	var requests atomic.Int64

	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }),
	)
	server.Listener.Close()

	var err error
	if server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0"); err != nil {
		t.Fatal(err)
	}

	server.Start()
	defer server.Close()

	check := rollout.HTTPCheck{Port: server.Listener.Addr().(*net.TCPAddr).Port}
	hosts := []string{
		"localhost",
		"127.0.0.1",
		"127.8.9.10",
		"::1",
		"::ffff:127.0.0.1",
		"64:ff9b::7f00:1",
		"64:ff9b:1::7f00:1",
		"0.0.0.0",
		"169.254.169.254",
		"::ffff:169.254.169.254",
		"100.100.100.200",
		"fd00:ec2::254",
		"fe80::1",
		"224.0.0.1",
	}

	addrs, err := net.InterfaceAddrs()
	errtest.None(t, err)

	own := ""

	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			own = ip.IP.String()
			hosts = append(hosts, own, "::ffff:"+own)
		}
	}

	for _, host := range hosts {
		_, err := Ask(t.Context(), &state.View{}, check.URL(host))
		if err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s gives %v", host, err)
		}
	}

	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests reached this host", n)
	}

	if own == "" {
		return
	}

	v := &state.View{}
	v.View = record.WithList(v.View, &state.Instances, &state.Instance{Addr: own})
	if _, err := Ask(t.Context(), v, check.URL(own)); err != nil || requests.Load() != 1 {
		t.Errorf("the node of the manager: %v", err)
	}
}
