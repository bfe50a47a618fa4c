import { expect, test } from '@jest/globals';
import { kindsOf } from '../../parts/import-kinds.ts';
import { configBody, convertBody, firstChoices, restoreBody } from './choices.ts';

const file = (permissions: string[]) => ({ type: 'OVA', permissions }) as never;

test('what may be made of a file is what its permissions say', () => {
  expect(kindsOf(file(['restore', 'convert_backup', 'download']))).toEqual(['vm', 'backup']);
  expect(kindsOf(file(['import_disk']))).toEqual(['disk']);
  expect(kindsOf(file([]))).toEqual([]);
});

test('only what was chosen is sent', () => {
  const first = firstChoices(file(['restore']));
  expect(restoreBody('f', { ...first, node: 'n' })).toEqual({ file: 'f', node: 'n' });
  const mapped = { ...first, node: 'n', system: 's', networks: { 'VM Network': 'default', other: '' } };
  expect(configBody('f', mapped)).toEqual({
    file: 'f',
    node: 'n',
    system: 's',
    networks: { 'VM Network': 'default' },
  });
});

test('drivers are put in only where disks become virtio', () => {
  const first = { ...firstChoices(file(['convert_backup'])), inject_drivers: true };
  expect(convertBody(first)).toEqual({});
  expect(convertBody({ ...first, node: 'n' })).toEqual({ node: 'n' });
  expect(convertBody({ ...first, virtio: true })).toEqual({ virtio: true, inject_drivers: true });
});
