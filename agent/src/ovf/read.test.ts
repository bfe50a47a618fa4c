import { describe, expect, test } from '@jest/globals';
import { hasKey } from '@virtkeep/shared/errors';
import { applianceOf, readOvf, systemsOf } from './index.ts';
import { cpus, DISK, descriptor, disk, FILE, memory, only, read, sata, scsi, system } from './test-kit.ts';

/** Key and text of what it throws. */
function refusal(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (hasKey(error)) return `${error.msgKey}: ${error.message}`;
    throw error;
  }
  return 'nothing';
}

describe('what is no descriptor', () => {
  test.each([
    ['http://www.vmware.com/schema/ovf/1/envelope'],
    ['http://schemas.dmtf.org/ovf/envelope/2'],
    ['http://schemas.dmtf.org/ovf/envelope/1/'],
  ])('the namespace %s is refused by name', namespace => {
    const text = refusal(() => read(descriptor({ namespace })));
    expect(text).toContain('ovf_version_unsupported: The OVF descriptor web.ovf');
    expect(text).toContain(`its namespace is "${namespace}".`);
  });

  test('no namespace', () => {
    expect(refusal(() => read('<Envelope><VirtualSystem/></Envelope>'))).toContain('its namespace is "none"');
  });

  test.each([
    ['a DOCTYPE', '<!DOCTYPE Envelope [<!ENTITY a "b">]><Envelope/>', 'DOCTYPE'],
    ['an entity', '<Envelope>&x;</Envelope>', ''],
    ['another root', '<domain/>', 'root element'],
    ['no XML', 'PK\u0003\u0004', ''],
    ['nothing', '', ''],
    ['deep nesting', descriptor({ content: '<a>'.repeat(70) + '</a>'.repeat(70) }), 'deeper than'],
    ['too many elements', descriptor({ content: '<a/>'.repeat(20_001) }), 'elements'],
    ['no VM', descriptor({ content: '' }), 'describes no VM'],
    ['too many items', descriptor({ content: system({ items: cpus(1).repeat(2001) }) }), '2000 items'],
    ['too many VMs', descriptor({ content: system({ items: '' }).repeat(257) }), '256 systems'],
    ['its end missing', descriptor().slice(0, -20), ''],
  ])('%s', (_name, text, reason) => {
    const told = refusal(() => read(text));
    expect(told).toMatch(/^ovf_invalid: The OVF descriptor web\.ovf cannot be read: /);
    expect(told).toContain(reason);
  });

  test('more bytes than are read', () => {
    expect(refusal(() => readOvf(new Uint8Array(8 * 1024 * 1024 + 1), 'x'))).toContain('larger than');
  });

  test('another encoding is refused by name', () => {
    const latin = Buffer.from('<?xml version="1.0" encoding="iso-8859-1"?><Envelope a="\u00fc"/>', 'latin1');
    expect(refusal(() => readOvf(latin, 'x'))).toContain('it is not UTF-8 but says "iso-8859-1"');
    const wide = Buffer.from('\ufeff<?xml version="1.0" encoding="utf-16"?><Envelope/>', 'utf16le');
    expect(refusal(() => readOvf(wide, 'x'))).toContain('it is not UTF-8 but says "utf-16"');
  });
});

test('a byte order mark is no fault', () => {
  expect(systemsOf(read(`\ufeff${descriptor()}`))).toHaveLength(1);
});

describe('files', () => {
  const fileOf = (attributes: string) =>
    read(descriptor({ files: `<File ovf:id="f1" ${attributes}/>` })).files.get('f1');

  test('compressed, in pieces, with a name of another script', () => {
    expect(
      fileOf('ovf:href="%D0%B4.vmdk.gz" ovf:size="7" ovf:compression="gzip" ovf:chunkSize="65536"'),
    ).toEqual({
      id: 'f1',
      href: '%D0%B4.vmdk.gz',
      paths: ['д.vmdk.gz', '%D0%B4.vmdk.gz'],
      fault: null,
      sizeBytes: 7,
      compression: 'gzip',
      chunkSizeBytes: 65_536,
    });
  });

  test.each([
    ['ovf:href="../disk.vmdk"', 'leads out'],
    ['ovf:href="http://example.org/disk.vmdk"', 'address'],
    ['ovf:href="disk.vmdk" ovf:compression="bzip2"', '"bzip2" is not known'],
    ['', 'names no file'],
  ])('%s is a fault of the file alone', (attributes, fault) => {
    expect(fileOf(attributes)).toMatchObject({ paths: [], fault: expect.stringContaining(fault) });
  });

  test('of two with one id the first counts', () => {
    const { files, warnings } = read(descriptor({ files: FILE + FILE.replace('web-', 'other-') }));
    expect(files.get('f1')?.href).toBe('web-disk1.vmdk');
    expect(warnings).toMatchObject([
      { element: 'File "f1"', key: 'contradiction' },
      { element: 'Disk "d1"' },
    ]);
  });
});

describe('several VMs', () => {
  const two = descriptor({
    content: `<VirtualSystemCollection ovf:id="c"><Info/>${system({ id: 'a', name: 'one' })}<VirtualSystemCollection ovf:id="d"><Info/>${system(
      { id: 'b', name: 'two' },
    )}${system({ id: 'c', name: 'two' })}</VirtualSystemCollection></VirtualSystemCollection>`,
  });

  test('are listed, however they are nested', () => {
    expect(systemsOf(read(two)).map(({ id, name, cpus, memoryMiB }) => [id, name, cpus, memoryMiB])).toEqual([
      ['a', 'one', 2, 2048],
      ['b', 'two', 2, 2048],
      ['c', 'two', 2, 2048],
    ]);
  });

  test('one is chosen by its id, or by a name that is its own', () => {
    expect(applianceOf(read(two), { system: 'b' }).systemId).toBe('b');
    expect(applianceOf(read(two), { system: 'one' }).systemId).toBe('a');
  });

  test.each([
    [
      {},
      'ovf_system_ambiguous: The OVF descriptor web.ovf describes several VMs. Choose one of them: "a", "b", "c".',
    ],
    [{ system: 'two' }, 'ovf_system_ambiguous'],
    [{ system: 'x' }, 'ovf_system_unknown: The OVF descriptor web.ovf has no VM "x". It has: "a", "b", "c".'],
    [
      { system: 'a', configuration: 'y' },
      'ovf_configuration_unknown: The OVF descriptor web.ovf has no configuration "y". It has: none.',
    ],
  ])('%j', (choice, text) => {
    expect(refusal(() => applianceOf(read(two), choice))).toContain(text);
  });
});

describe('configurations', () => {
  const options = (more: string) =>
    `<DeploymentOptionSection><Info/><Configuration ovf:id="s"/><Configuration ovf:id="l" ${more}/></DeploymentOptionSection>`;
  const items =
    cpus(1, {}, { attributes: 'ovf:configuration="s"' }) +
    cpus(4, {}, { attributes: 'ovf:configuration="l"' }) +
    memory(512) +
    memory(4096, 'MB', { attributes: 'ovf:configuration="l"' }) +
    memory(1, 'TB', { attributes: 'ovf:bound="max"' });
  const envelope = (sections: string) => read(descriptor({ sections, content: system({ items }) }));
  const sizes = (sections: string, configuration?: string) => {
    const chosen = applianceOf(envelope(sections), configuration === undefined ? {} : { configuration });
    return [chosen.configuration, chosen.cpus, chosen.memoryMiB];
  };

  test('the default one, else the first; its items replace the general ones of the same InstanceID', () => {
    expect(sizes(options('ovf:default="true"'))).toEqual(['l', 4, 4096]);
    expect(sizes(options(''))).toEqual(['s', 1, 512]);
    expect(sizes(options(''), 'l')).toEqual(['l', 4, 4096]);
  });

  test('undeclared ones are those that items name', () => {
    expect(sizes('')).toEqual(['s', 1, 512]);
    expect(systemsOf(envelope(''))[0]?.configurations).toMatchObject([
      { id: 's', isDefault: true },
      { id: 'l', isDefault: false },
    ]);
  });

  test('an unknown one is refused with what there is', () => {
    expect(refusal(() => sizes(options(''), 'x'))).toContain('has no configuration "x". It has: "s", "l".');
  });
});

describe('sections that are not known', () => {
  test('are left out with a warning, also those that are demanded', () => {
    const { warnings } = only(
      {
        sections:
          '<EulaSection ovf:required="true"><Info/></EulaSection><InstallSection><Info/></InstallSection>',
      },
      { sections: '<vmw:SecretSection ovf:required="true"/>' },
    );
    expect(warnings.map(({ element, text }) => `${element}: ${text}`)).toEqual([
      'vmw:SecretSection: It is ignored, although the descriptor demands it.',
      'Disk "d1": No VM of the descriptor has this disk.',
      'EulaSection: Licences are not shown, although the descriptor demands it.',
      'InstallSection: Nothing is done at the first start for the software of the appliance.',
    ]);
  });

  test('thousands of warnings become 500', () => {
    const { warnings } = only({}, { sections: '<vmw:X/>'.repeat(5000) });
    expect(warnings).toHaveLength(500);
    expect(warnings.at(-1)?.text).toMatch(/^There are 45\d\d more warnings\.$/);
  });
});

test('a disk that another configuration has is not called unused', () => {
  const items = sata(3) + disk(4, 3, 0).replace('<Item', '<Item ovf:configuration="x"') + scsi(5, 'lsilogic');
  expect(read(descriptor({ content: system({ items }), disks: DISK })).warnings).toEqual([]);
});
