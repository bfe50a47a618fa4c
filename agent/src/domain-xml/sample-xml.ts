// Definitions that the tests of this folder share: shaped like libvirt 9's own output.

export const UUID = '11111111-2222-4333-8444-555555555555';

export const LIVE_XML = `<domain type='qemu' id='7' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>web &amp; db</name>
  <uuid>${UUID}</uuid>
  <genid>99999999-2222-4333-8444-555555555555</genid>
  <description>two&#13;
lines</description>
  <metadata>
    <libosinfo:libosinfo xmlns:libosinfo="http://libosinfo.org/xmlns/libvirt/domain/1.0">
      <libosinfo:os id="http://debian.org/debian/12"/>
    </libosinfo:libosinfo>
    <virtkeep:domain xmlns:virtkeep="urn:virtkeep:domain:1" template="yes" version="3">
      <virtkeep:parent id="aaaaaaaa-2222-4333-8444-555555555555" version="2"/>
      <virtkeep:attachment disk="bbbbbbbb-2222-4333-8444-555555555555" owner="cccccccc-2222-4333-8444-555555555555" target="vdb" path="/pool/frozen.qcow2" thin-clone="yes"/>
    </virtkeep:domain>
  </metadata>
  <memory unit='KiB'>131073</memory>
  <currentMemory unit='KiB'>131073</currentMemory>
  <vcpu placement='static'>2</vcpu>
  <sysinfo type='smbios'><system><entry name='uuid'>${UUID}</entry></system></sysinfo>
  <os firmware='efi'>
    <type arch='x86_64' machine='pc-q35-7.2'>hvm</type>
    <loader readonly='yes' secure='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>
    <nvram template='/usr/share/OVMF/OVMF_VARS.fd'>/var/lib/libvirt/qemu/nvram/web_VARS.fd</nvram>
  </os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap'/>
      <source file='/pool/top.qcow2' index='3'/>
      <backingStore type='file' index='4'>
        <format type='qcow2'/>
        <source file='/pool/mid.qcow2'/>
        <backingStore type='file' index='5'>
          <format type='raw'/>
          <source file='/pool/base.img'/>
          <backingStore/>
        </backingStore>
      </backingStore>
      <target dev='vda' bus='virtio'/>
      <serial>S1</serial>
      <alias name='virtio-disk0'/>
    </disk>
    <disk type='block' device='lun'>
      <driver name='qemu' type='raw'/>
      <source dev='/dev/sdx'/>
      <target dev='sda' bus='scsi'/>
      <shareable/>
      <alias name='ua-mine'/>
    </disk>
    <disk type='file' device='cdrom'>
      <driver name='qemu' type='raw'/>
      <source file='/iso/a.iso' startupPolicy='optional'/>
      <target dev='sdb' bus='sata'/>
      <readonly/>
    </disk>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw'/>
      <auth username='u'><secret type='ceph' uuid='${UUID}'/></auth>
      <source protocol='rbd' name='rbd/image'><host name='h' port='6789'/></source>
      <target dev='vdb' bus='virtio'/>
    </disk>
    <disk type='volume' device='disk'>
      <source pool='p' volume='v'/>
      <target dev='vdc' bus='virtio'/>
      <transient/>
    </disk>
    <interface type='network'>
      <mac address='52:54:00:AA:BB:CC'/>
      <source network='default'/>
      <target dev='vnet3'/>
      <model type='virtio'/>
    </interface>
    <serial type='pty' tty='/dev/pts/1'><source path='/dev/pts/1'/><target port='0'/></serial>
    <channel type='unix'>
      <source mode='bind' path='/run/libvirt/qemu/channel/7-web/org.qemu.guest_agent.0'/>
      <target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>
    </channel>
    <graphics type='vnc' port='5900' autoport='yes' listen='127.0.0.1'/>
    <hostdev mode='subsystem' type='mdev' model='vfio-pci'>
      <source><address uuid='DDDDDDDD-2222-4333-8444-555555555555'/></source>
    </hostdev>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source><address domain='0x0000' bus='0x03' slot='0x1f' function='0x2'/></source>
    </hostdev>
    <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>
    <memballoon model='virtio'/>
  </devices>
  <seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+64055</label></seclabel>
  <qemu:commandline><qemu:arg value='-snapshot'/></qemu:commandline>
</domain>
`;

export const SNAPSHOT_XML = `<domainsnapshot>
  <name>second</name>
  <description>d</description>
  <state>running</state>
  <parent>
    <name>first</name>
  </parent>
  <creationTime>1700000000</creationTime>
  <memory snapshot='external' file='/pool/second.memory'/>
  <disks>
    <disk name='vda' snapshot='external' type='file'>
      <driver type='qcow2'/>
      <source file='/pool/top.qcow2'/>
    </disk>
    <disk name='sda' snapshot='no'/>
  </disks>
  ${LIVE_XML.replace('/pool/top.qcow2', '/pool/mid.qcow2')}
</domainsnapshot>
`;
