import {
  Alert,
  ClipboardCopy,
  ClipboardCopyVariant,
  FormGroup,
  Modal,
  ModalBody,
  ModalHeader,
  TextInput,
} from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useSearchParams } from 'react-router';
import { answer, api, keyFor, list, type NodeRecord, type Pool, type Schemas } from '../api/client.ts';
import { ActionButton, ActionMenu } from '../parts/actions.tsx';
import { Confirm, Dialog } from '../parts/confirm.tsx';
import { DescriptionField, SelectField } from '../parts/fields.tsx';
import { StatusLabel } from '../parts/labels.tsx';
import { Empty, ListBar, useList } from '../parts/list.tsx';
import { useOpened } from '../parts/opened.ts';
import { ViewPage } from '../parts/page.tsx';
import { PoolOptions } from '../parts/pool-options.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { useToasts } from '../parts/toasts.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

type Enrolment = Schemas['Enrolment'];

export default function NodesPage() {
  const { texts } = useWords();
  const words = texts.nodes;
  const asked = useAsked();
  const state = useList();
  const [params, setParams] = useSearchParams();
  const query = useQuery({
    queryKey: ['nodes', state.query],
    queryFn: () => list<NodeRecord>(api.GET('/api/nodes/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
  });
  const reason = rightReason('node.manage', asked);
  const enrol = {
    key: 'enrol',
    label: words.enrol,
    reason,
    act: () => setParams({ enrol: '1' }),
  };
  return (
    <ViewPage title={words.title} actions={<ActionButton variant="primary" action={enrol} />}>
      {params.has('enrol') && reason === undefined && <Enrol close={() => setParams({})} />}
      <ListBar list={state} count={query.data?.count} />
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.empty} text={words.emptyText} />
          ) : (
            <NodeTable nodes={results} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

function Enrol({ close }: { close: () => void }) {
  const { texts } = useWords();
  const words = texts.nodes;
  const [name, setName] = useState('');
  const [address, setAddress] = useState('');
  const [ticket, setTicket] = useState<Enrolment | undefined>();
  if (ticket !== undefined) return <Commands ticket={ticket} close={close} />;
  const make = async () => {
    const body = {
      ...(name ? { verbose_name: name } : {}),
      ...(address ? { address } : {}),
      idempotency_key: keyFor('/api/nodes/', `${name} ${address}`),
    };
    setTicket(await answer(api.POST('/api/nodes/', { body })));
  };
  return (
    // once there is a token the commands stand in its place
    <Dialog title={words.enrol} submit={words.makeToken} act={make} close={close} done={() => {}}>
      <FormGroup label={words.enrolName} fieldId="node-name">
        <TextInput id="node-name" value={name} maxLength={255} onChange={(_event, value) => setName(value)} />
      </FormGroup>
      <FormGroup label={words.enrolAddress} fieldId="node-address">
        <TextInput
          id="node-address"
          value={address}
          maxLength={260}
          onChange={(_event, value) => setAddress(value)}
        />
      </FormGroup>
    </Dialog>
  );
}

/** The token stands in no list of processes: the agent reads it from the environment. */
function Commands({ ticket, close }: { ticket: Enrolment; close: () => void }) {
  const { texts, format } = useWords();
  const words = texts.nodes;
  const enrol = [
    `VIRTKEEP_ENROLL_TOKEN='${ticket.token}' virtkeep-agent enroll --config /etc/virtkeep/agent.yaml`,
    `--controller ${window.location.origin} --token -`,
  ].join(' ');
  const copy = { hoverTip: texts.common.copy, clickTip: texts.common.copied };
  return (
    <Modal variant="medium" isOpen onClose={close} aria-label={words.commands}>
      <ModalHeader title={words.enrol} />
      <ModalBody>
        <p>{words.enrolText}</p>
        <ClipboardCopy
          isReadOnly
          isExpanded
          variant={ClipboardCopyVariant.expansion}
          textAriaLabel={words.commands}
          toggleAriaLabel={texts.common.details}
          {...copy}
        >
          {enrol}
        </ClipboardCopy>
        <p>{words.enrolStart}</p>
        <ClipboardCopy isReadOnly textAriaLabel={words.enrolStart} {...copy}>
          systemctl enable --now virtkeep-agent
        </ClipboardCopy>
        <Alert isInline isPlain variant="info" title={words.until(format.time(ticket.expires_on))}>
          {words.waiting}
        </Alert>
      </ModalBody>
    </Modal>
  );
}

function NodeTable({ nodes }: { nodes: readonly NodeRecord[] }) {
  const { texts, format } = useWords();
  const words = texts.nodes;
  return (
    <Table aria-label={words.title} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{texts.common.status}</Th>
          <Th modifier="wrap">{words.address}</Th>
          <Th modifier="wrap">{words.machines}</Th>
          <Th modifier="wrap">{words.version}</Th>
          <Th modifier="wrap">{words.lastSeen}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {nodes.map(node => (
          <Tr key={node.id}>
            <Td dataLabel={texts.common.name} className="vk-name">
              {node.verbose_name}
              {node.description !== '' && <div className="vk-small">{node.description}</div>}
            </Td>
            <Td dataLabel={texts.common.status}>
              <StatusLabel status={node.status === 'FAILED' ? 'AWAY' : node.status} />
            </Td>
            <Td dataLabel={words.address}>{node.management_ip}</Td>
            <Td dataLabel={words.machines}>{words.machinesOn(node.domains_on_count, node.domains_count)}</Td>
            <Td dataLabel={words.version}>
              {node.version || texts.none}
              <div className="vk-small">
                {words.versions(node.hypervisor.libvirt, node.hypervisor.emulator)}
              </div>
            </Td>
            <Td dataLabel={words.lastSeen}>{format.age(node.last_seen)}</Td>
            <Td isActionCell>
              <NodeMenu node={node} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function NodeMenu({ node }: { node: NodeRecord }) {
  const { texts } = useWords();
  const words = texts.nodes;
  const asked = useAsked();
  const client = useQueryClient();
  const { attempt } = useToasts();
  const [params, setParams] = useSearchParams();
  // the first steps lead here
  const [asks, setAsks] = useState<'service' | 'edit' | 'remove' | undefined>(
    params.get('edit') === node.id ? 'edit' : undefined,
  );
  const close = () => {
    setAsks(undefined);
    if (params.has('edit')) setParams({}, { replace: true });
  };
  const isOut = node.status === 'SERVICE';
  const path = { id: node.id };
  const done = async (call: Promise<unknown>) => {
    await call;
    await client.invalidateQueries({ queryKey: ['nodes'] });
  };
  const put = (service_mode: boolean) =>
    done(answer(api.PUT('/api/nodes/{id}/', { params: { path }, body: { service_mode } })));
  const remove = () => done(answer(api.POST('/api/nodes/{id}/remove/', { params: { path }, body: {} })));
  const reason = (action: string) =>
    node.permissions.includes(action) ? undefined : rightReason('node.manage', asked);
  return (
    <>
      <ActionMenu
        of={node.verbose_name}
        actions={[
          { key: 'edit', label: words.change, reason: reason('update'), act: () => setAsks('edit') },
          {
            key: 'service',
            label: isOut ? words.serviceOff : words.serviceOn,
            reason: reason('update'),
            act: () => (isOut ? attempt(() => put(false)) : setAsks('service')),
          },
          {
            key: 'remove',
            label: words.remove,
            reason: reason('remove'),
            act: () => setAsks('remove'),
            isDanger: true,
          },
        ]}
      />
      {asks === 'service' && (
        <Confirm
          title={`${words.serviceOn}: ${node.verbose_name}`}
          text={words.serviceText}
          submit={words.serviceOn}
          act={() => put(true)}
          close={close}
        />
      )}
      {asks === 'edit' && <EditNode node={node} done={done} close={close} />}
      {asks === 'remove' && (
        <Confirm
          title={words.removeTitle(node.verbose_name)}
          text={words.removeText}
          submit={words.remove}
          name={node.verbose_name}
          act={remove}
          close={close}
        />
      )}
    </>
  );
}

interface EditNodeProps {
  node: NodeRecord;
  done: (call: Promise<unknown>) => Promise<void>;
  close: () => void;
}

function EditNode({ node: shown, done, close }: EditNodeProps) {
  const node = useOpened(shown);
  const { texts } = useWords();
  const words = texts.nodes;
  const [description, setDescription] = useState(node.description);
  const [base_datapool, setPool] = useState(node.base_datapool ?? '');
  const pools = useQuery({
    queryKey: ['pools', 'of', node.id],
    queryFn: () =>
      list<Pool>(api.GET('/api/data-pools/', { params: { query: { node: node.id, limit: 1000 } } })),
  });
  const act = () => {
    const body = {
      ...(description === node.description ? {} : { description }),
      ...(base_datapool === (node.base_datapool ?? '') ? {} : { base_datapool }),
    };
    return done(answer(api.PUT('/api/nodes/{id}/', { params: { path: { id: node.id } }, body })));
  };
  return (
    <Dialog title={words.changeTitle(node.verbose_name)} submit={texts.common.save} act={act} close={close}>
      {fault => (
        <>
          <SelectField
            id="node-pool"
            label={words.basePool}
            help={words.basePoolHelp}
            options={node.base_datapool === null ? [['', texts.none]] : []}
            value={base_datapool}
            error={fault('base_datapool')}
            change={setPool}
          >
            <PoolOptions pools={pools.data?.results} />
          </SelectField>
          <DescriptionField of="node" value={description} fault={fault} change={setDescription} />
        </>
      )}
    </Dialog>
  );
}
