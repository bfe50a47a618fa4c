import { expect, test } from '@jest/globals';
import { ShowBackupResponse } from './gen/virtkeep/agent/v1/backup.ts';
import { DiskSource } from './gen/virtkeep/agent/v1/disk.ts';
import { SavedState } from './gen/virtkeep/agent/v1/domain.ts';
import { Operation } from './gen/virtkeep/agent/v1/operation.ts';
import { OperationResult } from './gen/virtkeep/agent/v1/operation_result.ts';
import { BackupFile } from './gen/virtkeep/agent/v1/pool.ts';
import {
  type ResultCase,
  type ResultOf,
  required,
  resultFields,
  resultJson,
  resultOf,
} from './operation-result.ts';

const created = new Date('2026-01-02T03:04:05.678Z');
const file = BackupFile.fromPartial({
  ...{ id: 'f', poolId: 'p', filename: 'a.tar', path: '/p/backups/a.tar', size: 12345678901n, type: 'tar' },
  ...{ domainId: 'd', domainName: 'vm', created, hashed: true, canBeIncremental: true, manifestJson: '{}' },
  ...{ states: [{ name: 's1', created, memory: false, consistency: 'off', number: 1 }], archiveId: 'f' },
});
const FILE =
  '{"id":"f","poolId":"p","filename":"a.tar","path":"/p/backups/a.tar","size":"12345678901","type":"tar",' +
  '"domainId":"d","domainName":"vm","created":"2026-01-02T03:04:05.678Z","hashed":true,' +
  '"states":[{"name":"s1","created":"2026-01-02T03:04:05.678Z","consistency":"off","number":1}],' +
  '"canBeIncremental":true,"manifestJson":"{}","archiveId":"f"}';
const snapshot = SavedState.fromPartial({
  ...{ id: 's', name: 'before', created, current: true, targets: ['vda'], nothingDeletedSince: false },
});
const source = DiskSource.fromPartial({ diskId: 'v', ownerId: 'o', attachedId: 'a', format: 'qcow2' });
const SOURCE = '{"diskId":"v","ownerId":"o","attachedId":"a","format":"qcow2"}';
const disks = [{ id: 'v', path: '/p/v.qcow2', poolId: 'p', targetDev: 'vda' }];
const DISKS = '[{"id":"v","path":"/p/v.qcow2","pool_id":"p","target_dev":"vda"}]';
const verified = { verifiedAt: '2026-01-02T03:04:05.678Z', hashed: true };
const signature = { trust: 'own', signer: 'n', reason: '', coversContent: true };
const restored = { domainId: 'd', name: 'vm' };
const attached = {
  ...{ vdisk: 'v', ownerId: 'o', attached: { id: 'a', targetDev: 'vdb', path: '/p/a' }, warnings: [] },
};

/** What agents told as JSON when that was all they told: REST and older controllers go on with it. */
const GOLDEN: { [C in ResultCase]: [value: ResultOf<C>, json: string][] } = {
  backup: [[{ file, state: 2 }, `{"file":${FILE},"state":2}`]],
  restore: [
    [
      { ...restored, disks, warnings: ['w'], poolChanged: false, images: undefined },
      `{"domain_id":"d","name":"vm","disks":${DISKS},"warnings":["w"],"pool_changed":false}`,
    ],
  ],
  verify: [
    [
      {
        ...{ ok: true, problems: [], ...verified, restorableStates: { numbers: [1, 2] }, signature },
        unprovenMembers: undefined,
      },
      '{"ok":true,"problems":[],"verified_at":"2026-01-02T03:04:05.678Z","hashed":true,"restorable_states":[1,2],' +
        '"signature":{"trust":"own","signer":"n","reason":"","covers_content":true}}',
    ],
    [
      {
        ...{ ok: false, problems: [{ member: '', reason: 'torn: x' }], ...verified, hashed: false },
        ...{ restorableStates: { numbers: [] }, signature: undefined, unprovenMembers: 3 },
      },
      '{"ok":false,"problems":[{"member":"","reason":"torn: x"}],"verified_at":"2026-01-02T03:04:05.678Z",' +
        '"hashed":false,"restorable_states":[],"unproven_members":3}',
    ],
  ],
  recompress: [[{ file }, `{"file":${FILE}}`]],
  trim: [[{ file, removedStates: [1, 2] }, `{"file":${FILE},"removed_states":[1,2]}`]],
  recompressCopy: [[{ file }, `{"file":${FILE}}`]],
  convertBackup: [
    [{ file }, `{"file":${FILE}}`],
    [{ file, signedBy: 'CN=a' }, `{"file":${FILE},"signed_by":"CN=a"}`],
  ],
  refreshBackup: [
    [{ shown: ShowBackupResponse.fromPartial({ xml: '<domain/>' }) }, '{"shown":{"xml":"<domain/>"}}'],
  ],
  convertAll: [
    [{ files: [file, file] }, `{"files":[${FILE},${FILE}]}`],
    [{ files: [file], driversInjected: true }, `{"files":[${FILE}],"drivers_injected":true}`],
    [{ files: [file], signedBy: 'CN=a' }, `{"files":[${FILE}],"signed_by":"CN=a"}`],
  ],
  exportBackup: [
    [{ file, path: '/p/a', files: ['/p/a/a.ovf'] }, `{"file":${FILE},"path":"/p/a","files":["/p/a/a.ovf"]}`],
  ],
  scanPool: [
    [{ files: [file, file] }, `{"files":[${FILE},${FILE}]}`],
    [{ files: [] }, '{"files":[]}'],
  ],
  // never read as a scan that found nothing
  scanApart: [[{ count: 3 }, '{}']],
  uploadIso: [
    [
      { id: 'i', poolId: 'p', filename: 'a.iso', path: '/p/a.iso', size: 5n },
      '{"id":"i","pool_id":"p","filename":"a.iso","path":"/p/a.iso","size":5}',
    ],
  ],
  uploadFile: [
    [
      { poolId: 'p', filename: 'a.ova', path: '/p/backups/a.ova', size: 5n, sha256: 'ab', file: undefined },
      '{"pool_id":"p","filename":"a.ova","path":"/p/backups/a.ova","size":5,"sha256":"ab"}',
    ],
  ],
  power: [
    [{ powerState: 'off', method: 'acpi' }, '{"power_state":"off","method":"acpi"}'],
    [{ powerState: 'suspended' }, '{"power_state":"suspended"}'],
  ],
  removeDomain: [
    [{ removed: ['/p/a', '/p/b'] }, '{"removed":["/p/a","/p/b"]}'],
    [{ removed: [] }, '{"removed":[]}'],
  ],
  renameDomain: [[{ name: 'new', formerName: 'old' }, '{"name":"new","former_name":"old"}']],
  createSnapshot: [
    [
      { snapshot },
      '{"snapshot":{"id":"s","name":"before","created":"2026-01-02T03:04:05.678Z","current":true,"targets":["vda"],' +
        '"nothingDeletedSince":false}}',
    ],
  ],
  revertSnapshot: [[{ powerState: 'running' }, '{"power_state":"running"}']],
  attachDisk: [
    [
      { ...attached, snapshot: { id: 's', name: 'lent' } },
      '{"vdisk":"v","owner_id":"o","attached":{"id":"a","target_dev":"vdb","path":"/p/a"},' +
        '"snapshot":{"id":"s","name":"lent"},"warnings":[]}',
    ],
    [
      { ...attached, snapshot: undefined, warnings: ['w'] },
      '{"vdisk":"v","owner_id":"o","attached":{"id":"a","target_dev":"vdb","path":"/p/a"},"snapshot":null,' +
        '"warnings":["w"]}',
    ],
  ],
  detachDisk: [
    [
      { vdisk: 'v', ownerId: '', domainId: 'd', ownerIsHere: false },
      '{"vdisk":"v","owner_id":"","domain_id":"d","owner_is_here":false}',
    ],
  ],
  lendDisk: [
    [
      { source, snapshot: { id: 's', name: 'lent' } },
      `{"source":${SOURCE},"snapshot":{"id":"s","name":"lent"}}`,
    ],
    [{ source, snapshot: undefined }, `{"source":${SOURCE},"snapshot":null}`],
  ],
  keepLoans: [[{ waiting: ['v'] }, '{"waiting":["v"]}']],
  cloneDomain: [
    [{ ...restored, disks, warnings: [] }, `{"domain_id":"d","name":"vm","disks":${DISKS},"warnings":[]}`],
  ],
  applianceRestore: [
    [
      { domains: [{ ...restored, disks, warnings: ['w'], poolChanged: false, images: undefined }] },
      `{"domains":[{"domain_id":"d","name":"vm","disks":${DISKS},"warnings":["w"],"pool_changed":false}]}`,
    ],
    [
      { domains: [{ ...restored, disks, warnings: [], poolChanged: false, images: { paths: ['/p/i'] } }] },
      `{"domains":[{"domain_id":"d","name":"vm","disks":${DISKS},"warnings":[],"pool_changed":false,"images":{"paths":["/p/i"]}}]}`,
    ],
  ],
  importDisk: [
    [
      { ...restored, disk: disks[0], warnings: ['w'] },
      `{"domain_id":"d","name":"vm","disk":${DISKS.slice(1, -1)},"warnings":["w"]}`,
    ],
  ],
  configRestore: [[{ ...restored, warnings: ['w'] }, '{"domain_id":"d","name":"vm","warnings":["w"]}']],
  changeTemplate: [
    [{ templateId: 't', version: 3, clones: ['c'] }, '{"template_id":"t","version":3,"clones":["c"]}'],
  ],
  setHostname: [
    [
      { hostname: 'h', method: 'offline', restarted: false },
      '{"hostname":"h","method":"offline","restarted":false}',
    ],
  ],
  joinDirectory: [
    [
      { domain: 'ad', computerName: 'pc', restarted: true, warnings: [], installed: ['adcli'] },
      '{"domain":"ad","computer_name":"pc","restarted":true,"warnings":[],"installed":["adcli"]}',
    ],
  ],
  leaveDirectory: [[{ domain: 'ad', restarted: false }, '{"domain":"ad","restarted":false}']],
  addSshKeys: [[{ keys: ['k'], method: 'agent' }, '{"keys":["k"],"method":"agent"}']],
  removeSshKeys: [[{ keys: [], method: 'offline' }, '{"keys":[],"method":"offline"}']],
  sysprep: [[{ action: 'quit' }, '{"action":"quit"}']],
  prepare: [[{ operations: ['logfiles'] }, '{"operations":["logfiles"]}']],
  attachGuestTools: [[{ targetDev: 'sdb', path: '/t.iso' }, '{"target_dev":"sdb","path":"/t.iso"}']],
  detachGuestTools: [[{ targetDev: 'sdb' }, '{"target_dev":"sdb"}']],
};

const rowsOf = <C extends ResultCase>($case: C) =>
  GOLDEN[$case].map(
    ([value, json]) =>
      [$case, OperationResult.fromPartial({ result: { $case, value } as never }), json] as const,
  );
const rows = (Object.keys(GOLDEN) as ResultCase[]).flatMap(rowsOf);
const kindOf = ($case: ResultCase) => $case.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`);

/** As it comes over the wire. */
const heard = (fields: Partial<Operation>) =>
  Operation.decode(Operation.encode(Operation.fromPartial(fields)).finish());

test.each(rows)('%s: its JSON is what it was, to the byte', ($case, { result }, json) => {
  const fields = resultFields(result);
  expect(fields.resultJson).toBe(json);
  // the controller makes the same of what it hears, without the JSON
  const operation = heard({ kind: kindOf($case), result: fields.result });
  expect(JSON.stringify(resultJson(operation))).toBe(json);
  expect(resultOf(operation, $case)).toEqual(result?.value);
});

test.each(rows.filter(([$case]) => $case !== 'scanApart'))(
  '%s: an agent of before told the JSON alone, and is understood',
  ($case, { result }, json) => {
    const operation = heard({ kind: kindOf($case), resultJson: json });
    expect(resultOf(operation, $case)).toEqual(result?.value);
    expect(JSON.stringify(resultJson(operation))).toBe(json);
  },
);

test('the journal keeps it', () => {
  const operation = Operation.fromPartial({
    kind: 'power',
    ...resultFields({ $case: 'power', value: { powerState: 'off', method: 'acpi' } }),
  });
  const kept = Operation.fromJSON(JSON.parse(JSON.stringify(Operation.toJSON(operation))));
  expect(resultOf(kept, 'power')).toEqual({ powerState: 'off', method: 'acpi' });
});

test('a kind that only later agents know is shown as its JSON says', () => {
  const result = { typeUrl: '', value: Buffer.from([0xfa, 0x3f, 0x00]) };
  expect(resultJson(heard({ kind: 'new', result, resultJson: '{"a":1}' }))).toEqual({ a: 1 });
});

test('what is not told is not taken for nothing: a pool without files, say', () => {
  const { resultJson: ofApart } = resultFields({ $case: 'scanApart', value: { count: 3 } });
  for (const json of ['', ofApart, '{"files":', '[]', 'null'])
    expect(() => resultOf(heard({ kind: 'scan_pool', resultJson: json }), 'scanPool')).toThrow();
  expect(() => required(undefined, 'file')).toThrow();
});

test('an operation that makes nothing tells nothing: an empty object', () => {
  expect(resultFields(undefined)).toEqual({ result: undefined, resultJson: '{}' });
  expect(resultJson(heard({ kind: 'delete_backup', resultJson: '{}' }))).toEqual({});
});

test('what earlier agents did not tell is known as untold', () => {
  const { warnings } = resultOf(
    heard({ kind: 'attach_disk', resultJson: '{"vdisk":"v"}', warnings: ['w'] }),
    'attachDisk',
  );
  expect(warnings).toEqual(['w']);
  expect(resultOf(heard({ kind: 'verify', resultJson: '{"ok":true}' }), 'verify')).toMatchObject({
    ...{ ok: true, problems: [], restorableStates: undefined, signature: undefined },
  });
});

test.each([
  ['none', {}],
  ['one of another kind', resultFields({ $case: 'sysprep', value: { action: 'quit' } })],
  ['what is no JSON', { resultJson: '{"' }],
  ['JSON that is no object', { resultJson: '7' }],
  ['a time that is none', { kind: 'scan_pool', resultJson: '{"files":[{"created":"x"}]}' }],
  ['what is no message', { result: { typeUrl: '', value: Buffer.from([0xff]) } }],
])('a node that tells %s does no harm', (_what, fields) => {
  const operation = heard({ kind: 'odd', ...fields });
  expect(() => resultOf(operation, 'power')).toThrow();
  expect(resultJson(operation)).toBeInstanceOf(Object);
});

test('a large one goes as JSON alone, so that it is not twice as large, and is read as the same', () => {
  const files = Array.from({ length: 50 }, () => ({ ...file, manifestJson: 'x'.repeat(100_000) }));
  const fields = resultFields({ $case: 'scanPool', value: { files } });
  expect(fields.result).toBeUndefined();
  const operation = Operation.fromPartial({ kind: 'scan_pool', resultJson: fields.resultJson });
  expect(resultOf(operation, 'scanPool')).toEqual({ files });
});
