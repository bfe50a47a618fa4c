import { expect, test } from '@jest/globals';
import { BackupServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { DiskServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { DomainServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { GuestServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import { ImageServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/image';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { PoolServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { RestoreServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { SnapshotServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { TemplateServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { UploadServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { mayCall, ROLES } from './permissions.ts';

const SERVICES = [
  BackupServiceDefinition,
  DiskServiceDefinition,
  DomainServiceDefinition,
  GuestServiceDefinition,
  ImageServiceDefinition,
  NodeServiceDefinition,
  OperationServiceDefinition,
  PoolServiceDefinition,
  RestoreServiceDefinition,
  SnapshotServiceDefinition,
  TemplateServiceDefinition,
  UploadServiceDefinition,
];

/** Written by hand: who may call each method. What differs by the request has a row for each of its kinds. */
const MATRIX = `
  BackupService.Convert                                             controller
  BackupService.Delete                                              controller
  BackupService.Download                                   operator controller
  BackupService.Export                                              controller
  BackupService.RecompressCopy                                      controller
  BackupService.Trim                                                controller
  BackupService.Recompress                                          controller
  BackupService.Show                                reader operator controller
  BackupService.Start                                      operator controller
  BackupService.Refresh                                    operator controller
  BackupService.Verify                                     operator controller
  DiskService.Attach                                       operator controller
  DiskService.Attach {"source":{"pathInPool":"x"}}                   controller
  DiskService.Detach                                       operator controller
  DiskService.Lend                                                  controller
  DiskService.Return                                                controller
  DomainService.Get                                 reader operator controller
  DomainService.GetXml                              reader operator controller
  DomainService.List                                reader operator controller
  DomainService.Remove                                              controller
  DomainService.Rename                                              controller
  DomainService.SetPower                                   operator controller
  DomainService.Update                                              controller
  GuestService.AddSshKeys                                  operator controller
  GuestService.AttachTools                                 operator controller
  GuestService.DetachTools                                 operator controller
  GuestService.GetInfo                              reader operator controller
  GuestService.GetInfo {"refresh":true}                    operator controller
  GuestService.JoinDirectory                               operator controller
  GuestService.LeaveDirectory                              operator controller
  GuestService.ListCommands                                operator controller
  GuestService.ListSshKeys                                 operator controller
  GuestService.Prepare                                     operator controller
  GuestService.ListPreparations                            operator controller
  GuestService.RemoveSshKeys                               operator controller
  GuestService.RunCommand {"command":"guest-exec"}         operator controller
  GuestService.RunCommand {"command":"guest-file-read"}    operator controller
  GuestService.RunCommand {"command":"guest-ping"}         operator controller
  GuestService.RunCommand {"command":"guest-shutdown"}     operator controller
  GuestService.SetHostname                                 operator controller
  GuestService.Sysprep                                     operator controller
  ImageService.Download                                    operator controller
  ImageService.List                                 reader operator controller
  ImageService.Upload                                               controller
  NodeService.AnswerQuestion                                        controller
  NodeService.FindUses                                              controller
  NodeService.GetInfo                               reader operator controller
  NodeService.InstallCertificate                                    controller
  NodeService.RenewCertificate                                      controller
  NodeService.Revoke                                                controller
  NodeService.WatchInventory                        reader operator controller
  NodeService.WatchQuestions                                        controller
  OperationService.Cancel                                  operator controller
  OperationService.Get                              reader operator controller
  OperationService.List                             reader operator controller
  OperationService.Watch                            reader operator controller
  PoolService.Get                                   reader operator controller
  PoolService.List                                  reader operator controller
  PoolService.ListFiles                             reader operator controller
  PoolService.Scan                                         operator controller
  PoolService.StreamFiles                           reader operator controller
  PoolService.Update                                                controller
  RestoreService.ImportDisk                                         controller
  RestoreService.Start                                     operator controller
  RestoreService.Start {"allowForeign":true}                        controller
  RestoreService.StartAppliance                                     controller
  RestoreService.StartConfig                                        controller
  SnapshotService.Create                                   operator controller
  SnapshotService.List                              reader operator controller
  SnapshotService.Remove                                   operator controller
  SnapshotService.Revert                                   operator controller
  TemplateService.Change                                            controller
  TemplateService.Clone                                             controller
  UploadService.Abort                                               controller
  UploadService.Create                                              controller
  UploadService.Get                                                 controller
  UploadService.Resume                                              controller
  UploadService.Write                                               controller
`;

/** Requests of each kind that a method tells apart. */
const KINDS: Record<string, object[]> = {
  'DiskService.Attach': [{}, { source: { pathInPool: 'x' } }],
  'GuestService.GetInfo': [{}, { refresh: true }],
  'RestoreService.Start': [{}, { allowForeign: true }],
  'GuestService.RunCommand': ['exec', 'file-read', 'ping', 'shutdown'].map(name => ({
    command: `guest-${name}`,
  })),
};

function rowsOfTable(): string[] {
  const methods = SERVICES.flatMap(service =>
    Object.values(service.methods).map(method => ({ service, name: method.name })),
  );
  return methods
    .flatMap(({ service, name }) => {
      const title = `${service.name}.${name}`;
      return (KINDS[title] ?? [{}]).map(request => {
        const roles = ROLES.filter(role => mayCall(role, `/${service.fullName}/${name}`, request));
        const kind = Object.keys(request).length === 0 ? [] : [JSON.stringify(request)];
        return [title, ...kind, ...roles].join(' ');
      });
    })
    .sort();
}

test('every method is open to exactly the roles of the matrix', () => {
  const byHand = MATRIX.trim()
    .split('\n')
    .map(row => row.trim().replace(/ +/g, ' '));
  expect(rowsOfTable()).toEqual(byHand.sort());
});

test('nobody may call what is not in the table, and nobody without a role anything', () => {
  for (const role of ROLES) {
    expect(mayCall(role, '/virtkeep.agent.v1.NodeService/constructor', {})).toBe(false);
    expect(mayCall(role, '/constructor/name', {})).toBe(false);
    expect(mayCall(role, '/grpc.health.v1.Health/Check', {})).toBe(true);
  }
  expect(mayCall(undefined, '/grpc.health.v1.Health/Check', {})).toBe(false);
});
