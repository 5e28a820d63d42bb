# SPDX-License-Identifier: Apache-2.0
#
# A stand-in for Vagrant that makes no machine: it evaluates a Vagrantfile and prints
# the machines as JSON. It supports the methods and options in our file; any other is
# an error, as in Vagrant.
#
#   ruby -r ./vagrant.rb Vagrantfile up

require "json"

module Vagrant
  Provider = Struct.new(:memory, :linked_clone)

  VM = Struct.new(:box, :hostname, :networks, :folders, :providers, :provisioners, :machines) do
    def network(type, ip:, virtualbox__intnet:, libvirt__forward_mode:)
      networks << { type: type, ip: ip, virtualbox: virtualbox__intnet, libvirt: libvirt__forward_mode }
    end

    def synced_folder(host, guest, disabled: false)
      folders << { host: host, guest: guest, disabled: disabled }
    end

    def provider(name)
      yield providers[name] ||= Provider.new
    end

    def provision(name, type: name, run: "once", source: nil, destination: nil, path: nil, args: [])
      provisioners << { name: name, type: type, run: run, source: source, destination: destination, path: path, args: args }
    end

    def define(name, primary: false)
      machine = Marshal.load(Marshal.dump(self))
      yield Config.new(machine)
      machines << machine.to_h.merge(name: name, primary: primary, providers: machine.providers.transform_values(&:to_h)).except(:machines)
    end
  end

  Config = Struct.new(:vm)

  def self.configure(version)
    raise "version #{version} of the interface" unless version == "2"

    config = Config.new(VM.new(nil, nil, [], [], {}, [], []))
    yield config
    puts JSON.generate(config.vm.machines)
  end
end
