// SPDX-License-Identifier: Apache-2.0

// Package git fetches playbooks from a git repository into a bare mirror, within
// bounds of size, time and number of files. It has no working tree, and runs no hooks,
// filters or other programs. Everything that it fetches is untrusted: a tree with a path
// that may harm is refused as a whole, by the name of the file.
//
// A mirror is a cache. One that is damaged, e.g. by a crash, is fetched anew; nothing
// depends on the commits in it, because the trees in use are kept by repository.Store.
package git
