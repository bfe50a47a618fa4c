/** The services of the agent: one line each. The rights of their methods stand in grpc/permissions.ts. */
import { BackupServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { DiskServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import { GuestServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import { ImageServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/image';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { PoolServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { RestoreServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { SnapshotServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { TemplateServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { UploadServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { backupService } from './grpc/backup-service.ts';
import { diskService } from './grpc/disk-service.ts';
import { domainService } from './grpc/domain-service.ts';
import { LeanDomainService } from './grpc/encoded-list.ts';
import { guestOperations } from './grpc/guest-operations.ts';
import { guestService } from './grpc/guest-service.ts';
import { imageService } from './grpc/image-service.ts';
import { nodeService } from './grpc/node-service.ts';
import { operationService } from './grpc/operation-service.ts';
import { poolService } from './grpc/pool-service.ts';
import { restoreService } from './grpc/restore-service.ts';
import { type Service, service } from './grpc/server.ts';
import { snapshotService } from './grpc/snapshot-service.ts';
import { templateService } from './grpc/template-service.ts';
import { uploadService } from './grpc/upload-service.ts';
import type { Parts } from './parts.ts';
import { type FindUsesDependencies, findUses } from './workflows/devices/find-uses.ts';

export function agentServices(parts: Parts): Service[] {
  const { runner, workflows, inventory } = parts;
  const cloneOf = async (id: string) => {
    await inventory.complete();
    return inventory.domains().find(({ parentId }) => parentId === id);
  };
  const uses: FindUsesDependencies = { ...workflows, cloneOf };
  return [
    service(OperationServiceDefinition, operationService(runner)),
    service(
      NodeServiceDefinition,
      nodeService({ ...parts, findUses: (things, signal) => findUses(uses, things, signal) }),
    ),
    service(LeanDomainService, domainService(parts)),
    service(SnapshotServiceDefinition, snapshotService(runner, workflows)),
    service(DiskServiceDefinition, diskService(parts)),
    service(PoolServiceDefinition, poolService({ ...parts, settings: parts.journal.settings })),
    service(BackupServiceDefinition, backupService(runner, workflows)),
    service(ImageServiceDefinition, imageService(runner, workflows)),
    service(UploadServiceDefinition, uploadService(runner, parts.uploads)),
    service(RestoreServiceDefinition, restoreService(runner, workflows)),
    service(TemplateServiceDefinition, templateService(runner, workflows)),
    service(GuestServiceDefinition, {
      ...guestService(parts),
      ...guestOperations(runner, parts.guestOperations),
    }),
  ];
}
