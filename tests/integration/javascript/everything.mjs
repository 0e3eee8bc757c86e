// Everything that Azure's administration client can do, once, against a server of ours.
// Prints one JSON object: what was given and what came back. tests/integration/test_javascript.py compares them.
//
//     node everything.mjs FOLDER PACKAGE < connection string
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The packages of today expect Node.js 20. In 18, which Debian 12 has, this is all that they miss.
globalThis.crypto ??= webcrypto;

const [folder, packageName] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { ServiceBusAdministrationClient } = require(packageName);
const client = new ServiceBusAdministrationClient(readFileSync(0, "utf8").trim(), { retryOptions: { maxRetries: 0 } });
const results = { version: require(`${packageName}/package.json`).version };

const KEY = Buffer.alloc(32, "k").toString("base64");
const authorizationRules = [
  {
    claimType: "SharedAccessKey",
    accessRights: ["Manage", "Send", "Listen"],
    keyName: "mine",
    primaryKey: KEY,
    secondaryKey: KEY,
  },
];

async function all(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

async function pages(iterator, maxPageSize) {
  const found = [];
  for await (const page of iterator.byPage({ maxPageSize })) found.push(page.map((each) => each.name ?? each.subscriptionName));
  return found;
}

async function refused(call) {
  try {
    await call();
    return "nothing was refused";
  } catch (error) {
    return `${error.statusCode} ${error.code}`;
  }
}

// Raw responses of HTTP hang on every object, and are no property.
const plain = (object) => JSON.parse(JSON.stringify(object, (key, value) => (key === "_response" ? undefined : value)));

async function queues() {
  const given = {
    lockDuration: "PT13S",
    maxSizeInMegabytes: 3072,
    maxMessageSizeInKilobytes: 2048,
    requiresDuplicateDetection: true,
    requiresSession: true,
    defaultMessageTimeToLive: "PT11M",
    deadLetteringOnMessageExpiration: true,
    duplicateDetectionHistoryTimeWindow: "PT12M",
    maxDeliveryCount: 100,
    enableBatchedOperations: false,
    userMetadata: "some <text> & é",
    autoDeleteOnIdle: "PT10M",
    enablePartitioning: true,
    enableExpress: true,
    status: "Active",
    authorizationRules,
  };
  await client.createQueue("js-target");
  const created = await client.createQueue("js/all", { ...given, forwardDeadLetteredMessagesTo: "js-target" });
  const read = await client.getQueue("js/all");
  const wanted = { ...read, maxDeliveryCount: 7, lockDuration: "PT1M", status: "SendDisabled", userMetadata: "new" };
  const updated = await client.updateQueue(wanted);
  const again = await client.getQueue("js/all");
  const simple = await client.createQueue("js-simple");
  for (const at of [0, 1, 2]) await client.createQueue(`js-page-${at}`);
  return {
    given,
    created,
    read,
    wanted,
    updated,
    again,
    simple,
    updatedSimple: await client.updateQueue(simple),
    names: (await all(client.listQueues())).map((each) => each.name),
    pages: await pages(client.listQueues(), 2),
    runtime: await client.getQueueRuntimeProperties("js/all"),
    runtimes: (await all(client.listQueuesRuntimeProperties())).map((each) => [each.name, each.totalMessageCount]),
    exists: [await client.queueExists("js/all"), await client.queueExists("js-none")],
    twice: await refused(() => client.createQueue("js-simple")),
    missing: await refused(() => client.getQueue("js-none")),
    invalid: await refused(() => client.createQueue("js-bad", { lockDuration: "PT6M" })),
  };
}

async function topics() {
  const given = {
    defaultMessageTimeToLive: "P1D",
    maxSizeInMegabytes: 2048,
    maxMessageSizeInKilobytes: 1024,
    requiresDuplicateDetection: true,
    duplicateDetectionHistoryTimeWindow: "PT1M",
    enableBatchedOperations: false,
    userMetadata: "topic",
    supportOrdering: true,
    autoDeleteOnIdle: "PT30M",
    enablePartitioning: true,
    enableExpress: false,
    status: "Active",
    authorizationRules,
  };
  const created = await client.createTopic("js-topic", given);
  const read = await client.getTopic("js-topic");
  const wanted = { ...read, defaultMessageTimeToLive: "P2D", userMetadata: "changed" };
  const updated = await client.updateTopic(wanted);
  for (const at of [0, 1, 2]) await client.createTopic(`js-t-page-${at}`);
  return {
    given,
    created,
    read,
    wanted,
    updated,
    again: await client.getTopic("js-topic"),
    names: (await all(client.listTopics())).map((each) => each.name),
    pages: await pages(client.listTopics(), 3),
    runtime: await client.getTopicRuntimeProperties("js-topic"),
    runtimes: (await all(client.listTopicsRuntimeProperties())).map((each) => [each.name, each.subscriptionCount]),
    exists: [await client.topicExists("js-topic"), await client.topicExists("js-none")],
  };
}

async function subscriptions() {
  const given = {
    lockDuration: "PT30S",
    requiresSession: true,
    defaultMessageTimeToLive: "PT1H",
    deadLetteringOnMessageExpiration: true,
    deadLetteringOnFilterEvaluationExceptions: false,
    maxDeliveryCount: 5,
    enableBatchedOperations: false,
    userMetadata: "subscription",
    autoDeleteOnIdle: "PT20M",
    status: "Active",
  };
  const created = await client.createSubscription("js-topic", "all", {
    ...given,
    forwardDeadLetteredMessagesTo: "js-target",
    defaultRuleOptions: { name: "first", filter: { sqlExpression: "a = 1" }, action: { sqlExpression: "SET b = 2" } },
  });
  const read = await client.getSubscription("js-topic", "all");
  const wanted = { ...read, maxDeliveryCount: 6, userMetadata: "changed" };
  const updated = await client.updateSubscription(wanted);
  for (const at of [0, 1, 2]) await client.createSubscription("js-topic", `page-${at}`);
  const listed = await all(client.listSubscriptionsRuntimeProperties("js-topic"));
  return {
    given,
    created,
    read,
    wanted,
    updated,
    again: await client.getSubscription("js-topic", "all"),
    names: (await all(client.listSubscriptions("js-topic"))).map((each) => each.subscriptionName),
    pages: await pages(client.listSubscriptions("js-topic"), 3),
    runtime: await client.getSubscriptionRuntimeProperties("js-topic", "all"),
    runtimes: listed.map((each) => [each.subscriptionName, each.activeMessageCount]),
    rule: await client.getRule("js-topic", "all", "first"),
    exists: [
      await client.subscriptionExists("js-topic", "all"),
      await client.subscriptionExists("js-topic", "none"),
    ],
  };
}

async function rules() {
  const filters = {
    sql: {
      sqlExpression: "n = @number AND t = @text AND f = @flag",
      sqlParameters: { "@number": 5, "@text": "x <&> é", "@flag": true },
    },
    correlation: {
      correlationId: "c",
      messageId: "m",
      to: "to",
      replyTo: "back",
      subject: "l",
      sessionId: "s",
      replyToSessionId: "rs",
      contentType: "text/plain",
      applicationProperties: {
        number: 5,
        fraction: 1.5,
        text: "text",
        flag: false,
        moment: new Date(Date.UTC(2026, 0, 2, 3, 4, 5)),
      },
    },
    // The client has no classes for filters that are always true or false: it writes their SQL.
    always: { sqlExpression: "1=1" },
    never: { sqlExpression: "1=0" },
  };
  const action = { sqlExpression: "SET a = @number; REMOVE b", sqlParameters: { "@number": 5 } };
  const made = {};
  for (const [name, filter] of Object.entries(filters)) {
    made[name] = [
      await client.createRule("js-topic", "page-0", name, filter, action),
      await client.getRule("js-topic", "page-0", name),
    ];
  }
  const rule = await client.getRule("js-topic", "page-0", "sql");
  const wanted = { ...rule, filter: { subject: "new" }, action: { sqlExpression: "SET c = 3" } };
  const updated = await client.updateRule("js-topic", "page-0", wanted);
  const found = {
    filters,
    action,
    made,
    wanted,
    updated,
    names: (await all(client.listRules("js-topic", "page-0"))).map((each) => each.name),
    pages: await pages(client.listRules("js-topic", "page-0"), 3),
    exists: [
      await client.ruleExists("js-topic", "page-0", "sql"),
      await client.ruleExists("js-topic", "page-0", "none"),
    ],
    invalid: await refused(() => client.createRule("js-topic", "page-0", "bad", { sqlExpression: "a = " })),
  };
  for (const name of found.names) await client.deleteRule("js-topic", "page-0", name);
  found.left = await all(client.listRules("js-topic", "page-0"));
  return found;
}

async function removed() {
  await client.deleteSubscription("js-topic", "page-2");
  const subscriptions = (await all(client.listSubscriptions("js-topic"))).map((each) => each.subscriptionName);
  for await (const topic of client.listTopics()) await client.deleteTopic(topic.name);
  for await (const queue of client.listQueues()) await client.deleteQueue(queue.name);
  return {
    subscriptions,
    left: [...(await all(client.listQueues())), ...(await all(client.listTopics()))],
    missing: await refused(() => client.deleteQueue("js-none")),
  };
}

results.queues = await queues();
results.topics = await topics();
results.subscriptions = await subscriptions();
results.rules = await rules();
results.namespace = await client.getNamespaceProperties();
results.removed = await removed();
console.log(JSON.stringify(plain(results)));
