/**
 * Public descriptors, which are not the project's: this runs where a folder of them is there, beside the project's or where
 * `VIRTKEEP_OVF_SAMPLES` says. What each is taken for stands here; one that is not listed fails.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { hasKey } from '@virtkeep/shared/errors';
import { applianceOf, domainXmlOf, readOvf, systemsOf } from './index.ts';
import { TARGET } from './test-kit.ts';

const FOLDER =
  process.env.VIRTKEEP_OVF_SAMPLES ?? join(import.meta.dirname, '../../../../shared/fixtures/ovf');

const LINUX = 'http://libosinfo.org/linux/2022';
const RHEL = 'http://redhat.com/rhel/6-unknown';
const WIN = 'http://microsoft.com/win/';

/** Id, system, CPUs, MiB, disks with their buses. */
type Vm = [string, string, number, number, string];

const TEMPLATE: Vm = ['@@NAME@@', LINUX, 1, 1024, 'scsi'];
const PVE: Vm = ['vm', `${WIN}10`, 4, 6144, 'scsi'];
const V2V: Vm = ['2K8R2EESP1_2_Medium', `${WIN}2k8r2`, 1, 1024, 'scsi'];

const SAMPLES: Record<string, Vm | string> = {
  'cot-input.ovf': ['test', LINUX, 4, 4096, 'scsi'],
  'cot-iosv.ovf': ['com.cisco.iosv', LINUX, 1, 384, 'ide ide'],
  'cot-v0.9.ovf': 'its namespace is "http://www.vmware.com/schema/ovf/1/envelope"',
  'cot-vmware.ovf': ['vmw', RHEL, 2, 1536, 'scsi'],
  'ganeti-ganeti.ovf': ['New-shiny-instance', LINUX, 1, 2048, 'sata'],
  'ganeti-gzip_disk.ovf': ['New-shiny-instance', LINUX, 1, 2048, 'sata'],
  ...Object.fromEntries(
    [7, 10, 11, 13, 14, 15, 17, 18, 19, 20, 21].map(version => [
      `openvmdk-template-hw${version}.ovf`,
      TEMPLATE,
    ]),
  ),
  'pve-Win10-Liz.ovf': PVE,
  'pve-Win10-Liz_no_default_ns.ovf': PVE,
  'v2v-test-i-ova-gz.ovf': V2V,
  'v2v-test-i-ova-snapshots.ovf': V2V,
  'v2v-test-i-ova-two-disks.ovf': ['2K8R2EESP1_2_Medium', `${WIN}2k8r2`, 1, 1024, 'scsi scsi'],
  'v2v-test-i-ova.ovf': ['TestOva', `${WIN}7`, 1, 2048, 'scsi'],
  'vmware-deployment-configs.ovf': ['deployment-configs-vm', LINUX, 8, 8192, 'scsi scsi scsi'],
  'vmware-disk-capacity-property.ovf': ['disk-capacity-property-vm', '', 1, 512, 'scsi'],
  'vmware-external_DeleteHDTestdata_IdeSas_IdeSas.ovf': ['Vm1', RHEL, 1, 256, 'ide scsi'],
  'vmware-external_FlexibleNicType_FlexibleNic.ovf': [
    'sc-16dd2df0-db9a-4117-836a-115f9bb1a20b',
    LINUX,
    1,
    512,
    'scsi',
  ],
  'vmware-external_ovf-uppercase-ext_nostalgia.OVF': ['Nostalgia', '', 1, 64, 'scsi'],
  'vmware-external_ovftoolresources_http_uri_in_file.ovf': [
    'PTC01_VM',
    LINUX,
    1,
    1024,
    'it is not a file of the package',
  ],
  'vmware-external_vbs_efi-nvram_efi-nvram.ovf': ['efi.boot vm', `${WIN}2k8r2`, 1, 1024, 'scsi'],
  'vmware-file-ref-path.ovf': ['file-ref-path-vm', LINUX, 1, 512, 'scsi'],
  'vmware-mixed-disks.ovf': ['mixed-disks-vm', LINUX, 1, 512, 'scsi scsi'],
  'vmware-photon5.ovf': ['vm', LINUX, 1, 2048, 'scsi'],
  'vmware-ubuntu24.10.ovf': ['ubuntu-oracular-24.10-cloudimg-20241109', LINUX, 2, 1024, 'scsi'],
};

/** As the table has it. */
function read(name: string): Vm | string {
  try {
    const envelope = readOvf(readFileSync(join(FOLDER, name)), name);
    const [summary, ...others] = systemsOf(envelope);
    expect(others).toEqual([]);
    const { id, os, cpus, memoryMiB } = summary!;
    const appliance = applianceOf(envelope);
    domainXmlOf(appliance, TARGET);
    const disks = appliance.disks.map(({ bus, fault }) => fault?.split(': ').at(-1)?.slice(0, 31) ?? bus);
    return [id, os.id, cpus, memoryMiB, disks.join(' ')];
  } catch (error) {
    if (hasKey(error, 'ovf_invalid', 'ovf_version_unsupported')) return error.message;
    throw error;
  }
}

(existsSync(FOLDER) ? describe : describe.skip)('public descriptors', () => {
  const names = existsSync(FOLDER) ? readdirSync(FOLDER).filter(name => /\.ovf$/i.test(name)) : [];

  test('all of them are listed', () => {
    expect(names.filter(name => !Object.hasOwn(SAMPLES, name))).toEqual([]);
  });

  test.each(Object.entries(SAMPLES))('%s', (name, expected) => {
    if (typeof expected === 'string') expect(read(name)).toContain(expected);
    else expect(read(name)).toEqual(expected);
  });
});
