/** Names that things bear to be found by. */
import { Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'react-router';
import { answer, api, keyFor, list, SELDOM, type Tag } from '../api/client.ts';
import { ActionButton, ActionMenu } from '../parts/actions.tsx';
import { Confirm, Dialog } from '../parts/confirm.tsx';
import { DescriptionField, TextField } from '../parts/fields.tsx';
import { Empty, ListBar, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

export default function TagsPage() {
  const { texts } = useWords();
  const words = texts.tags;
  const state = useList();
  const reason = rightReason('tag.manage', useAsked());
  const [isMaking, setMaking] = useState(false);
  const query = useQuery({
    queryKey: ['tags', state.query],
    queryFn: () => list<Tag>(api.GET('/api/tags/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
    ...SELDOM,
  });
  return (
    <ViewPage
      title={words.title}
      actions={
        <ActionButton
          variant="primary"
          action={{ key: 'make', label: words.make, reason, act: () => setMaking(true) }}
        />
      }
    >
      {isMaking && <EditTag close={() => setMaking(false)} />}
      <ListBar list={state} count={query.data?.count} />
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.empty} text={words.emptyText} />
          ) : (
            <TagTable tags={results} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

function TagTable({ tags }: { tags: readonly Tag[] }) {
  const { texts } = useWords();
  const words = texts.tags;
  return (
    <Table aria-label={words.title} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{texts.common.description}</Th>
          <Th modifier="wrap">{words.bearers}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {tags.map(tag => (
          <Tr key={tag.id}>
            <Td dataLabel={texts.common.name} className="vk-name">
              <Label isCompact>{tag.verbose_name}</Label>
            </Td>
            <Td dataLabel={texts.common.description}>{tag.description}</Td>
            <Td dataLabel={words.bearers}>
              <Link
                to={`/vms?tag=${tag.id}`}
                aria-label={words.bearersOf(tag.entities_count, tag.verbose_name)}
              >
                {tag.entities_count}
              </Link>
            </Td>
            <Td isActionCell>
              <TagMenu tag={tag} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function TagMenu({ tag }: { tag: Tag }) {
  const { texts } = useWords();
  const words = texts.tags;
  const client = useQueryClient();
  const reason = rightReason('tag.manage', useAsked());
  const [asks, setAsks] = useState<'edit' | 'remove' | undefined>();
  const close = () => setAsks(undefined);
  const remove = async () => {
    await answer(api.POST('/api/tags/{id}/remove/', { params: { path: { id: tag.id } }, body: {} }));
    await client.invalidateQueries({ queryKey: ['tags'] });
  };
  return (
    <>
      <ActionMenu
        of={tag.verbose_name}
        actions={[
          { key: 'edit', label: words.change, reason, act: () => setAsks('edit') },
          { key: 'remove', label: words.remove, reason, act: () => setAsks('remove'), isDanger: true },
        ]}
      />
      {asks === 'edit' && <EditTag tag={tag} close={close} />}
      {asks === 'remove' && (
        <Confirm
          title={words.removeTitle(tag.verbose_name)}
          text={words.removeText(tag.entities_count)}
          submit={words.remove}
          name={tag.verbose_name}
          act={remove}
          close={close}
        />
      )}
    </>
  );
}

function EditTag({ tag, close }: { tag?: Tag; close: () => void }) {
  const { texts } = useWords();
  const words = texts.tags;
  const client = useQueryClient();
  const [verbose_name, setName] = useState(tag?.verbose_name ?? '');
  const [description, setDescription] = useState(tag?.description ?? '');
  const act = async () => {
    const body = { verbose_name, description };
    await answer(
      tag === undefined
        ? api.POST('/api/tags/', { body: { ...body, idempotency_key: keyFor('/api/tags/', verbose_name) } })
        : api.PUT('/api/tags/{id}/', { params: { path: { id: tag.id } }, body }),
    );
    await client.invalidateQueries({ queryKey: ['tags'] });
  };
  const title = tag === undefined ? words.make : words.changeTitle(tag.verbose_name);
  return (
    <Dialog title={title} submit={texts.common.save} isReady={verbose_name !== ''} act={act} close={close}>
      {fault => (
        <>
          <TextField
            id="tag-name"
            label={texts.common.name}
            isRequired
            maxLength={255}
            value={verbose_name}
            error={fault('verbose_name')}
            change={setName}
          />
          <DescriptionField of="tag" value={description} fault={fault} change={setDescription} />
        </>
      )}
    </Dialog>
  );
}
