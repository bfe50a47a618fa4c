import { expect, test } from '@jest/globals';
import { NOT_AUDITED } from './call-audit.ts';
import { NEEDS } from './permissions.ts';

const methods = Object.entries(NEEDS).flatMap(([service, names]) =>
  Object.keys(names).map(name => `${service.slice(service.lastIndexOf('.') + 1)}/${name}`),
);

/** By hand: what may be called without a line in the log. */
const BY_HAND = `
  DomainService/Get DomainService/List GuestService/GetInfo GuestService/ListCommands Health/Check Health/Watch
  ImageService/List NodeService/AnswerQuestion NodeService/FindUses NodeService/GetInfo NodeService/WatchInventory
  NodeService/WatchQuestions
  OperationService/Get OperationService/List OperationService/Watch PoolService/Get PoolService/List PoolService/ListFiles
  PoolService/StreamFiles ServerReflection/ServerReflectionInfo SnapshotService/List
`;

test('every method is told but those that only list or follow', () => {
  const untold = new Set(methods.filter(method => Object.hasOwn(NOT_AUDITED, method)));
  expect([...untold].sort()).toEqual(BY_HAND.trim().split(/\s+/).sort());
  expect(Object.keys(NOT_AUDITED).sort()).toEqual([...untold].sort());
});
