// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// refuseBrowsers refuses requests over TCP that another site made a browser send:
// by a DNS name that resolves to this host (a foreign Host), or by a page of
// another site (a foreign Origin). Programs send neither.
func refuseBrowsers(r *http.Request) error {
	if peerOf(r).unix {
		return nil
	}

	refuse := func(format string, args ...any) error {
		return inventory.Errorf(inventory.KindForbidden, format, args...).
			Do("use plain HTTP from programs on this host, by its loopback address")
	}
	// A DNS name of another site may resolve to the loopback address.
	if r.Host != "" && !isOwnHost(r.Host) {
		return refuse("the request is addressed to %q, which is not this host", r.Host)
	}

	// Browsers send Origin with every cross-site POST.
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Host != r.Host {
			return refuse("the request was sent by a page of %q", origin)
		}
	}

	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
		return nil
	default:
		return refuse("the request was sent by a page of another site (%s)", site)
	}
}

// isOwnHost reports whether a Host header names the loopback interface.
func isOwnHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}

	return isLoopback(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
}

// isLoopback reports whether a name or an address is of the loopback interface.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}

	ip, err := netip.ParseAddr(host)

	return err == nil && ip.IsLoopback()
}
