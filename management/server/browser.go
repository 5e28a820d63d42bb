// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// refuseBrowsers refuses requests over TCP that another site made a browser send:
// by a DNS name that resolves to this host (a foreign Host), or by a page of
// another site (a foreign Origin). Programs send neither.
func refuseBrowsers(r *http.Request) error {
	if peerOf(r).on == onSocket {
		return nil
	}

	refuse := func(format string, args ...any) error {
		return inventory.Errorf(inventory.KindForbidden, format, args...).
			Do("use plain HTTP from programs on this host, by its loopback address")
	}
	// A DNS name of another site may resolve to the loopback address. Clients of the
	// first generation write the address that the manager listened on: 0.0.0.0.
	own := isOwnHost(r.Host) || isUnspecified(r.Host) && !isBrowser(r)
	if r.Host != "" && !own && peerOf(r).on != onTLS {
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

// isBrowser reports whether a browser seems to have sent the request. A page of
// another site can address 0.0.0.0, which reaches this host.
func isBrowser(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "Sec-") || slices.Contains([]string{"Origin", "Referer", "Cookie"}, name) {
			return true
		}
	}

	return strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// isOwnHost reports whether a Host header names the loopback interface.
func isOwnHost(host string) bool { return isLoopback(nameOf(host)) }

// isUnspecified reports whether a Host header names the unspecified address.
func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(nameOf(host))
	return err == nil && ip.IsUnspecified()
}

// nameOf returns a Host header without its port.
func nameOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// isLoopback reports whether a name or an address is of the loopback interface.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}

	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
