import { expect, test } from '@jest/globals';
import { BackupServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { DiskServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { DomainServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { PoolServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { RestoreServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { SnapshotServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { TemplateServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { mayCall, PERMISSIONS } from './permissions.ts';

test.each([
  BackupServiceDefinition,
  DiskServiceDefinition,
  DomainServiceDefinition,
  NodeServiceDefinition,
  OperationServiceDefinition,
  PoolServiceDefinition,
  RestoreServiceDefinition,
  SnapshotServiceDefinition,
  TemplateServiceDefinition,
])('the table knows exactly the methods of $name', definition => {
  const methods = Object.values(definition.methods).map(method => method.name);
  expect(Object.keys(PERMISSIONS[definition.fullName] ?? {}).sort()).toEqual(methods.sort());
});

test('a role may do what lesser roles may, nothing above it, and nobody what is not in the table', () => {
  expect(mayCall('reader', '/virtkeep.agent.v1.OperationService/Get')).toBe(true);
  expect(mayCall('reader', '/virtkeep.agent.v1.OperationService/Cancel')).toBe(false);
  expect(mayCall('operator', '/virtkeep.agent.v1.OperationService/Cancel')).toBe(true);
  expect(mayCall('controller', '/virtkeep.agent.v1.NodeService/InstallCertificate')).toBe(true);
  expect(mayCall('operator', '/virtkeep.agent.v1.NodeService/InstallCertificate')).toBe(false);
  expect(mayCall('controller', '/virtkeep.agent.v1.NodeService/constructor')).toBe(false);
  expect(mayCall('controller', '/constructor/name')).toBe(false);
  expect(mayCall(undefined, '/grpc.health.v1.Health/Check')).toBe(false);
});
