// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// refuseBrowsers refuses requests over TCP that a browser was talked into sending: by a
// name that was made to point here (its Host is foreign), or by a page of
// another site (its Origin is). Programs send neither.
func refuseBrowsers(r *http.Request) error {
	if p := peerIn(r); p.unix {
		return nil
	}

	refuse := func(format string, args ...any) error {
		return inventory.Errorf(inventory.KindForbidden, format, args...).
			Do("plain HTTP serves programs on this host, at its loopback address")
	}
	if r.Host != "" && !isOurs(r.Host) {
		return refuse("the request is addressed to %q, which is not this host", r.Host)
	}

	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Host != r.Host {
			return refuse("the request comes from a page of %q", origin)
		}
	}

	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
		return nil
	default:
		return refuse("the request comes from a page of another site (%s)", site)
	}
}

// isOurs tells whether a Host header means this host, by its loopback interface.
func isOurs(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}

	return isLoopback(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
}

// isLoopback tells whether a name or an address says that it is of the
// loopback interface.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}

	ip, err := netip.ParseAddr(host)

	return err == nil && ip.IsLoopback()
}

func peerIn(r *http.Request) peer {
	if p, ok := r.Context().Value(peerKey{}).(peer); ok {
		return p
	}

	return peer{name: r.RemoteAddr} // served without Serve, by a test
}

// actor is who asks, for the records: the account at the other end of the Unix
// socket, or whom root says it acts for; over TCP only the address is known.
func actor(r *http.Request) (string, error) {
	p := peerIn(r)
	if !p.unix {
		return "http:" + p.name, nil
	}

	claimed := r.Header.Get(api.HeaderActor)
	if claimed == "" || p.uid != 0 {
		return p.name, nil
	}

	if len(claimed) > api.MaxActor || strings.ContainsFunc(claimed, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", inventory.Errorf(inventory.KindInvalid, "the header %s is not the name of a person",
			api.HeaderActor).
			Do("write a name of at most %d printable characters", api.MaxActor)
	}

	return claimed, nil
}
