import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { orAborted } from '@virtkeep/shared/abort';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { ReloadableCredentials } from '../../../agent/src/enroll/credentials.ts';
import { toIdentity } from '../../../agent/src/enroll/identity.ts';
import { CertificateRenewal } from '../../../agent/src/enroll/renewal.ts';
import { Revocations } from '../../../agent/src/enroll/revocations.ts';
import { type Inventory, nodeService } from '../../../agent/src/grpc/node-service.ts';
import { operationService } from '../../../agent/src/grpc/operation-service.ts';
import { type GrpcServer, type Service, service, startGrpcServer } from '../../../agent/src/grpc/server.ts';
import { LibvirtLink } from '../../../agent/src/libvirt/link.ts';
import { NodeStatus } from '../../../agent/src/node-status.ts';
import { Faults } from '../../../agent/src/operations/faults.ts';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { OperationRunner } from '../../../agent/src/operations/runner.ts';
import { QuestionChannel } from '../../../agent/src/question-channel.ts';
import type { CertificateAuthority } from '../../../controller/src/pki/authority.ts';
import { issue, newAuthority } from './pki.ts';

const ignore = () => silent;
export const silent = {
  error: ignore,
  warn: ignore,
  info: ignore,
  debug: ignore,
  child: ignore,
} as unknown as Logger;

/** A model of a node without anything. */
const emptyInventory: Inventory = {
  loaded: true,
  snapshot: () => ({ node: undefined, domains: [], pools: [] }),
  async *watch(signal) {
    yield { event: { $case: 'full', value: { node: undefined, domains: [], pools: [] } }, revision: 1n };
    await orAborted(new Promise(() => {}), signal);
  },
};

/** The agent's gRPC server with the services that need no hypervisor, on a free port. */
export interface TestAgent {
  nodeId: string;
  directory: string;
  ca: CertificateAuthority;
  runner: OperationRunner;
  revocations: Revocations;
  questions: QuestionChannel;
  server: GrpcServer;
  target: string;
  close(): Promise<void>;
}

/**
 * @param further services of a node with a hypervisor, as a test scripts them
 * @param log where the server says who called
 */
export async function startTestAgent(further: Service[] = [], log: Logger = silent): Promise<TestAgent> {
  const directory = mkdtempSync(join(tmpdir(), 'virtkeep-agent-'));
  const ca = await newAuthority();
  const nodeId = newId();
  const own = await issue(ca, 'server', [`urn:virtkeep:node:${nodeId}`]);
  const identity = toIdentity({
    keyPem: own.privateKeyPem,
    certificatePem: own.certificatePem,
    caPem: ca.certificatePem,
  });
  const journal = new Journal(join(directory, 'journal.db'));
  const runner = new OperationRunner({
    journal,
    log: silent,
    undoEffect: async () => {},
    refuseCopies: async () => {},
    faults: Faults.parse(''),
    concurrentOperations: 2,
  });
  const link = new LibvirtLink({ uri: 'none:///', keepAlive: { intervalSec: 5, count: 3 }, log: silent });
  const status = new NodeStatus({ nodeId, version: '1.2.3', link, log: silent });
  const credentials = new ReloadableCredentials(identity);
  const tlsDirectory = join(directory, 'tls');
  const revocations = new Revocations({ directory: tlsDirectory, caPem: ca.certificatePem, log: silent });
  const renewal = new CertificateRenewal({
    directory: tlsDirectory,
    revocations,
    identity,
    credentials,
    log: silent,
  });
  const questions = new QuestionChannel();
  const findUses = async (things: readonly unknown[]) => things.map(() => null);
  const services = [
    service(OperationServiceDefinition, operationService(runner)),
    service(
      NodeServiceDefinition,
      nodeService({ status, inventory: emptyInventory, renewal, revocations, questions, findUses }),
    ),
    ...further,
  ];
  const server = await startGrpcServer({
    address: '127.0.0.1',
    port: 0,
    credentials,
    revocations,
    epochs: journal.settings,
    services,
    log,
  });
  return {
    nodeId,
    directory,
    ca,
    runner,
    revocations,
    questions,
    server,
    target: `localhost:${server.port}`,
    async close() {
      runner.close();
      await server.close(500);
      await link.close();
      journal.close();
      rmSync(directory, { recursive: true });
    },
  };
}
