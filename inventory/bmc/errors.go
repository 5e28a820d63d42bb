// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"syscall"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/machine"
)

// textLimit bounds what messages quote of a BMC, in bytes.
const textLimit = 200

// quote returns text of a BMC for a message, on one line.
func quote(text string) string {
	return inventory.Shorten(inventory.Printable(strings.Join(strings.Fields(text), " ")), textLimit)
}

// correct is the remedy for a refused login. It is not tried again by itself, so that it locks nobody out.
const correct = "give the user and the password that it takes: clusterctl power login NAME --user USER; if you have " +
	"corrected it at the BMC itself: clusterctl power login NAME --again"

// refused is the error of a login that the BMC refused.
func refused(b machine.BMC, why string) error {
	return inventory.Errorf(inventory.KindRefused, "%w of %s at %s: %s", ErrLogin, name(b.User), hostPort(b), why).
		Do(correct)
}

// unreachable is the error of a BMC that does not answer.
func unreachable(b machine.BMC, err error) error {
	why := quote(err.Error())

	var (
		network net.Error
		unknown *net.DNSError
		cert    *tls.CertificateVerificationError
	)

	switch {
	case errors.As(err, &cert):
		return inventory.Errorf(inventory.KindUnavailable, "the certificate of the BMC at %s is not trusted: %s",
			hostPort(b), quote(cert.Error())).
			Do("have a certificate signed by a CA that this host trusts, or turn the verification off for this BMC")
	case errors.As(err, &unknown):
		why = "its name cannot be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "connection refused"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		why = "no answer in time"
	}

	return inventory.Errorf(inventory.KindUnavailable, "the BMC at %s cannot be reached: %s", hostPort(b), why).
		Do("check its address and port, and that its network and its %s service are up", protocol(b))
}

// garbage is the error of an answer that is none of the protocol.
func garbage(b machine.BMC, why string) error {
	return inventory.Errorf(inventory.KindUnavailable, "what answers at %s does not speak %s: %s",
		hostPort(b), protocol(b), quote(why)).
		Do("check the address, the port and the driver of the BMC")
}

// unable is the error of a BMC that does not do it.
func unable(b machine.BMC, why string) error {
	return inventory.Errorf(inventory.KindUnsupported, "the BMC at %s does not do that: %s", hostPort(b), quote(why)).
		Do("see its log")
}

// unprivileged is the error of a user with too few rights.
func unprivileged(b machine.BMC, role string) error {
	return inventory.Errorf(inventory.KindRefused, "%s lacks the rights for that at the BMC at %s",
		name(b.User), hostPort(b)).
		Do("give it the role %s there", role)
}

// asAdministrator returns the error of a request that needs more rights than the others.
func asAdministrator(b machine.BMC, err error) error {
	if inventory.KindOf(err) == inventory.KindRefused {
		return unprivileged(b, "Administrator")
	}
	return err
}

// protocol names the protocol of the BMC.
func protocol(b machine.BMC) string {
	if b.Driver.SpeaksRedfish() {
		return "Redfish"
	}
	return "IPMI"
}
