// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"testing"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/management/job"
)

// BenchmarkInputs measures what the secrets add to the acceptance of a job of 1000 hosts
// with 20 variables each, 2 of them secret.
func BenchmarkInputs(b *testing.B) {
	in := job.Inputs{Vars: map[string]map[string]configuration.Var{}}
	for i := range 1000 {
		host := map[string]configuration.Var{}
		for v := range 18 {
			host[fmt.Sprint("variable_", v)] = configuration.Var{Value: "value", Origin: configuration.OriginGlobal}
		}

		host["db_password"] = configuration.Var{Value: "secret", Origin: configuration.OriginGlobal}
		host["pin"] = configuration.Var{Value: configuration.NewSecret(fmt.Sprint(i)), Origin: configuration.OriginNode}
		in.Vars[fmt.Sprint("h-", i)] = host
	}

	s := testSecrets()

	for b.Loop() {
		if _, _, err := s.sealInputs("1", in); err != nil {
			b.Fatal(err)
		}
	}
}
