/** What changes a VM itself: its name, its protection, templates and clones, its removal. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import {
  AT_ONCE,
  answer,
  api,
  begun,
  type Domain,
  keyFor,
  list,
  newKey,
  type Pool,
  type Task,
} from '../../api/client.ts';
import type { Action } from '../../parts/actions.tsx';
import { Confirm, Dialog, TypedName } from '../../parts/confirm.tsx';
import { CheckField, DescriptionField, SelectField, TextField } from '../../parts/fields.tsx';
import { changesOf, useOpened } from '../../parts/opened.ts';
import { PoolOptions } from '../../parts/pool-options.tsx';
import { domainReason, rightReason } from '../../parts/reasons.ts';
import { TagDialog } from '../../parts/tag-dialog.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';

type Asks = 'edit' | 'tag' | 'clone' | 'change' | 'remove';

/** The actions, and the dialog by which one of them asks. */
export function useManageActions(domain: Domain): { actions: Action[]; dialog: React.ReactNode } {
  const { texts } = useWords();
  const words = texts.manage;
  const asked = useAsked();
  const client = useQueryClient();
  const { attempt, started } = useToasts();
  const [asks, setAsks] = useState<Asks | undefined>();
  const { id, verbose_name: name, template, protection } = domain;
  const params = { path: { id }, query: AT_ONCE };
  const reason = (action: string) => domainReason(action, domain, asked);
  const isExcluded = protection.state === 'excluded';
  const exclude = async () => {
    await answer(api.PUT('/api/domains/{id}/', { params, body: { protection_excluded: !isExcluded } }));
    await client.invalidateQueries({ queryKey: ['domains'] });
  };
  const mark = async () => {
    const key = keyFor(`/api/domains/${id}/template/`, String(!template));
    const body = { template: !template, idempotency_key: key };
    started(await begun(api.PUT('/api/domains/{id}/template/', { params, body })));
  };
  const change = async () => {
    const key = keyFor(`/api/domains/${id}/change-template/`);
    started(
      await begun(api.POST('/api/domains/{id}/change-template/', { params, body: { idempotency_key: key } })),
    );
  };
  const close = () => setAsks(undefined);
  const actions: Action[] = [
    { key: 'edit', label: words.edit, reason: reason('update'), act: () => setAsks('edit') },
    {
      key: 'tag',
      label: texts.vms.tag,
      reason: rightReason('tag.manage', asked),
      act: () => setAsks('tag'),
    },
    {
      key: 'exclude',
      label: isExcluded ? words.include : words.exclude,
      reason: reason('update'),
      act: () => attempt(exclude),
    },
    { key: 'clone', label: words.clone, reason: reason('clone'), act: () => setAsks('clone') },
    {
      key: 'template',
      label: template ? words.unmark : words.mark,
      reason: reason('template'),
      act: () => attempt(mark),
    },
    ...(domain.parent === null
      ? []
      : [
          {
            key: 'change',
            label: words.changeTemplate,
            reason: reason('change_template'),
            act: () => setAsks('change'),
            isDanger: true,
          },
        ]),
    {
      key: 'remove',
      label: words.remove,
      reason: reason('remove'),
      act: () => setAsks('remove'),
      isDanger: true,
    },
  ];
  const dialog = (
    <>
      {asks === 'edit' && <Edit domain={domain} close={close} />}
      {asks === 'tag' && <TagDialog machines={new Map([[id, domain.verbose_name]])} close={close} />}
      {asks === 'clone' && <Clone domain={domain} close={close} />}
      {asks === 'remove' && <Remove domain={domain} close={close} />}
      {asks === 'change' && (
        <Confirm
          title={words.changeTitle(domain.parent?.verbose_name ?? '')}
          text={words.changeText(name)}
          submit={words.changeTemplate}
          name={domain.parent?.verbose_name ?? ''}
          act={change}
          close={close}
        />
      )}
    </>
  );
  return { actions, dialog };
}

interface AskProps {
  domain: Domain;
  close: () => void;
}

function Edit({ domain: shown, close }: AskProps) {
  const domain = useOpened(shown);
  const { texts } = useWords();
  const words = texts.manage;
  const { started } = useToasts();
  const client = useQueryClient();
  const renaming = domainReason('rename', domain, useAsked());
  const [verbose_name, setName] = useState(domain.verbose_name);
  const [description, setDescription] = useState(domain.description);
  const [key] = useState(newKey);
  const act = async () => {
    const changes = changesOf<Pick<Domain, 'verbose_name' | 'description'>>(domain, {
      verbose_name,
      description,
    });
    const body = { ...changes, ...(changes.verbose_name === undefined ? {} : { idempotency_key: key }) };
    const changed = await answer(
      api.PUT('/api/domains/{id}/', { params: { path: { id: domain.id }, query: AT_ONCE }, body }),
    );
    // another name is given by a task
    if ('_task' in changed) started(changed._task as Task);
    await client.invalidateQueries({ queryKey: ['domains'] });
  };
  return (
    <Dialog
      title={words.editTitle(domain.verbose_name)}
      submit={texts.common.save}
      isReady={verbose_name !== ''}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <TextField
            id="vm-name"
            label={texts.common.name}
            help={renaming === undefined ? words.renameText : renaming}
            isDisabled={renaming !== undefined}
            maxLength={255}
            value={verbose_name}
            error={fault('verbose_name')}
            change={setName}
          />
          <DescriptionField of="vm" value={description} fault={fault} change={setDescription} />
        </>
      )}
    </Dialog>
  );
}

function Clone({ domain, close }: AskProps) {
  const { texts } = useWords();
  const words = texts.manage;
  const { started } = useToasts();
  const [verbose_name, setName] = useState('');
  const [thin, setThin] = useState(false);
  const [datapool, setPool] = useState('');
  const [key] = useState(newKey);
  const pools = useQuery({
    queryKey: ['pools', 'of', domain.node.id],
    queryFn: () =>
      list<Pool>(api.GET('/api/data-pools/', { params: { query: { node: domain.node.id, limit: 1000 } } })),
  });
  const act = async () => {
    const body = { verbose_name, thin, ...(datapool === '' ? {} : { datapool }), idempotency_key: key };
    const params = { path: { id: domain.id }, query: AT_ONCE };
    started(await begun(api.POST('/api/domains/{id}/clone/', { params, body })));
  };
  return (
    <Dialog
      title={words.cloneTitle(domain.verbose_name)}
      submit={words.clone}
      isReady={verbose_name !== ''}
      act={act}
      close={close}
    >
      {fault => (
        <>
          <TextField
            id="clone-name"
            label={texts.restore.name}
            isRequired
            maxLength={255}
            value={verbose_name}
            error={fault('verbose_name')}
            change={setName}
          />
          <CheckField
            id="clone-thin"
            label={words.thin}
            help={domain.template ? words.thinText : words.thinOfTemplates}
            isDisabled={!domain.template}
            isOn={thin}
            change={setThin}
          />
          <SelectField
            id="clone-pool"
            label={texts.common.pool}
            options={[['', words.samePool]]}
            value={datapool}
            error={fault('datapool')}
            change={setPool}
          >
            <PoolOptions pools={pools.data?.results} />
          </SelectField>
        </>
      )}
    </Dialog>
  );
}

function Remove({ domain, close }: AskProps) {
  const { texts } = useWords();
  const words = texts.manage;
  const { started } = useToasts();
  const [full, setFull] = useState(false);
  const [typed, setTyped] = useState('');
  const [key] = useState(newKey);
  const { id, verbose_name: name } = domain;
  const act = async () => {
    const params = { path: { id }, query: AT_ONCE };
    started(
      await begun(api.POST('/api/domains/{id}/remove/', { params, body: { full, idempotency_key: key } })),
    );
  };
  return (
    <Dialog
      title={words.removeTitle(name)}
      submit={words.remove}
      isDanger
      isReady={typed === name}
      act={act}
      close={close}
    >
      <p>{full ? words.removeFullText : words.removeText}</p>
      <CheckField id="remove-full" label={words.withDisks} isOn={full} change={setFull} />
      <TypedName label={texts.common.typeName(name)} typed={typed} type={setTyped} />
    </Dialog>
  );
}
