// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"time"

	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/boot"
	"github.com/contiv/cluster/management/step"
	"github.com/contiv/cluster/management/step/netboot"
)

const (
	// networkPatience bounds the inspection of a machine that boots for it.
	networkPatience = 30 * time.Minute
	// starts is how often such a machine is started, if nothing is heard of it.
	starts = 2
)

// bootAndLook has a machine boot from the network, and returns the facts that it reports.
func (x Executor) bootAndLook(ctx context.Context, s step.Step, out step.Events, node string) (facts.Found, error) {
	p, err := x.o.Booter.Run(ctx, netboot.Boot{
		Step: s, Out: out, Node: node, Order: boot.Order{Purpose: "inspect"}, Starts: starts,
		Late: func(boot.Progress) string { return "it has booted from the network, and reports no facts" },
	})
	if err != nil {
		return facts.Found{}, err
	}

	inBand := *p.Facts
	inBand.Sources = []string{facts.Network}

	ask := x.console(s.View(), node)
	if ask == nil {
		return facts.Found{Facts: inBand}, nil
	}

	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	outOfBand, err := ask(limited)
	if err != nil {
		inBand.Problems = append(inBand.Problems, "BMC: "+err.Error())
		return facts.Found{Facts: inBand}, nil
	}

	return facts.Found{Facts: inBand, OutOfBand: &outOfBand}, nil
}
