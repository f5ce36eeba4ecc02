/*M!999999\- enable the sandbox mode */ 

/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!40101 SET @OLD_CHARACTER_SET_RESULTS=@@CHARACTER_SET_RESULTS */;
/*!40101 SET @OLD_COLLATION_CONNECTION=@@COLLATION_CONNECTION */;
/*!40101 SET NAMES utf8mb4 */;
/*!40103 SET @OLD_TIME_ZONE=@@TIME_ZONE */;
/*!40103 SET TIME_ZONE='+00:00' */;
/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */;
/*!40014 SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0 */;
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;
/*!40111 SET @OLD_SQL_NOTES=@@SQL_NOTES, SQL_NOTES=0 */;
DROP TABLE IF EXISTS `seriatim_alias`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_alias` (
  `id` binary(16) NOT NULL,
  `target` binary(16) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_alias` WRITE;
/*!40000 ALTER TABLE `seriatim_alias` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_alias` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_delta`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_delta` (
  `n` bigint(20) NOT NULL AUTO_INCREMENT,
  `q` int(11) NOT NULL,
  `lanes` int(11) NOT NULL,
  `jobs` int(11) NOT NULL,
  `claimed` int(11) NOT NULL,
  `retrying` int(11) NOT NULL,
  `dead` int(11) NOT NULL,
  `processed` bigint(20) NOT NULL,
  `failed` bigint(20) NOT NULL,
  PRIMARY KEY (`n`)
) ENGINE=InnoDB AUTO_INCREMENT=79 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_delta` WRITE;
/*!40000 ALTER TABLE `seriatim_delta` DISABLE KEYS */;
INSERT INTO `seriatim_delta` VALUES
(1,1,1,1,0,0,0,0,0),
(2,1,1,1,0,0,0,0,0),
(3,1,1,1,0,0,0,0,0),
(4,1,1,1,0,0,0,0,0),
(5,1,1,1,0,0,0,0,0),
(6,1,1,1,0,0,0,0,0),
(7,1,1,1,0,0,0,0,0),
(8,1,1,1,0,0,0,0,0),
(9,1,1,1,0,0,0,0,0),
(10,1,1,1,0,0,0,0,0),
(11,1,1,1,0,0,0,0,0),
(12,1,1,1,0,0,0,0,0),
(13,1,0,0,12,0,0,0,0),
(14,1,-1,-1,-1,0,0,1,0),
(15,1,-1,-1,-1,0,0,1,0),
(16,1,-1,-1,-1,0,0,1,0),
(17,1,-1,-1,-1,0,1,0,1),
(18,1,-1,-1,-1,0,1,0,1),
(19,1,-1,-1,-1,0,1,0,1),
(20,1,0,0,-1,1,0,0,1),
(21,1,0,0,-1,1,0,0,1),
(22,1,0,0,-1,1,0,0,1),
(23,1,1,1,0,0,0,0,0),
(24,1,1,1,0,0,0,0,0),
(25,2,1,1,0,0,0,0,0),
(26,2,0,1,0,0,0,0,0),
(27,2,0,1,0,0,0,0,0),
(28,2,1,1,0,0,0,0,0),
(29,2,0,1,0,0,0,0,0),
(30,2,0,1,0,0,0,0,0),
(31,2,1,1,0,0,0,0,0),
(32,2,0,1,0,0,0,0,0),
(33,2,0,1,0,0,0,0,0),
(34,2,1,1,0,0,0,0,0),
(35,2,0,1,0,0,0,0,0),
(36,2,0,1,0,0,0,0,0),
(37,2,0,0,4,0,0,0,0),
(38,2,-1,-3,-1,0,0,3,0),
(39,2,-1,-3,-1,0,3,0,1),
(40,2,0,0,-1,1,0,0,1),
(41,2,1,1,0,0,0,0,0),
(42,2,1,1,0,0,0,0,0),
(43,3,1,1,0,0,0,0,0),
(44,3,0,1,0,0,0,0,0),
(45,3,0,1,0,0,0,0,0),
(46,3,1,1,0,0,0,0,0),
(47,3,0,1,0,0,0,0,0),
(48,3,0,1,0,0,0,0,0),
(49,3,1,1,0,0,0,0,0),
(50,3,0,1,0,0,0,0,0),
(51,3,0,1,0,0,0,0,0),
(52,3,1,1,0,0,0,0,0),
(53,3,0,1,0,0,0,0,0),
(54,3,0,1,0,0,0,0,0),
(55,3,0,0,4,0,0,0,0),
(56,3,0,-1,-1,0,0,1,0),
(57,3,0,-1,-1,0,1,0,1),
(58,3,0,0,-1,1,0,0,1),
(59,3,1,1,0,0,0,0,0),
(60,3,1,1,0,0,0,0,0),
(61,4,1,1,0,0,0,0,0),
(62,4,0,1,0,0,0,0,0),
(63,4,0,1,0,0,0,0,0),
(64,4,1,1,0,0,0,0,0),
(65,4,0,1,0,0,0,0,0),
(66,4,0,1,0,0,0,0,0),
(67,4,1,1,0,0,0,0,0),
(68,4,0,1,0,0,0,0,0),
(69,4,0,1,0,0,0,0,0),
(70,4,1,1,0,0,0,0,0),
(71,4,0,1,0,0,0,0,0),
(72,4,0,1,0,0,0,0,0),
(73,4,0,0,4,0,0,0,0),
(74,4,0,-1,-1,0,0,1,0),
(75,4,0,-1,-1,0,1,0,1),
(76,4,0,0,-1,0,0,0,1),
(77,4,1,1,0,0,0,0,0),
(78,4,1,1,0,0,0,0,0);
/*!40000 ALTER TABLE `seriatim_delta` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_ended`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_ended` (
  `seq` bigint(20) NOT NULL,
  `q` int(11) NOT NULL,
  `k` varbinary(512) DEFAULT NULL,
  `state` tinyint(4) NOT NULL,
  `at` bigint(20) NOT NULL,
  `until` bigint(20) DEFAULT NULL,
  `created` bigint(20) NOT NULL,
  `score` double NOT NULL,
  `prio` int(11) NOT NULL,
  `run_at` bigint(20) NOT NULL,
  `attempts` int(11) NOT NULL,
  `started` bigint(20) DEFAULT NULL,
  `retry` int(11) NOT NULL,
  `digest` binary(16) DEFAULT NULL,
  `rest` mediumblob DEFAULT NULL,
  `payload` longblob DEFAULT NULL,
  PRIMARY KEY (`seq`),
  KEY `ended_until` (`until`),
  KEY `ended_state` (`q`,`state`,`at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_ended` WRITE;
/*!40000 ALTER TABLE `seriatim_ended` DISABLE KEYS */;
INSERT INTO `seriatim_ended` VALUES
(16,1,NULL,1,1795374461205091,2079198461205091,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":1}'),
(32,1,NULL,1,1795374461205091,2079198461205091,1795374461205091,2,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":2}'),
(48,1,NULL,1,1795374461205091,2079198461205091,1795374461205091,3,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":3}'),
(64,1,NULL,3,1795374461205091,NULL,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":1}'),
(80,1,NULL,3,1795374461205091,NULL,1795374461205091,2,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":2}'),
(96,1,NULL,3,1795374461205091,NULL,1795374461205091,3,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":3}'),
(240,2,'done',1,1795374461205091,2079198461205091,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,'À\0Œ\Z	˚gÙlA…+ÅêÓ','{\"task\":\"work\"}','{\"key\":\"done\",\"n\":1}'),
(256,2,'done',1,1795374461205091,2079198461205091,1795374461205091,2,100,1795374461205091,1,1795374461205091,-1,'ıbŒàı[Îb\"vC^¬π⁄','{\"task\":\"work\"}','{\"key\":\"done\",\"n\":2}'),
(272,2,'done',1,1795374461205091,2079198461205091,1795374461205091,3,100,1795374461205091,1,1795374461205091,-1,'ka∆º•Zpåêq#§ÏÀËæ','{\"task\":\"work\"}','{\"key\":\"done\",\"n\":3}'),
(288,2,'dead',3,1795374461205091,NULL,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,'˙Z[Ga6Ú<™ÇÌN>Æ&','{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":1}'),
(304,2,'dead',3,1795374461205091,NULL,1795374461205091,2,100,1795374461205091,1,1795374461205091,-1,'ı7D£G¶uS˜cs@Ü(å/','{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":2}'),
(320,2,'dead',3,1795374461205091,NULL,1795374461205091,3,100,1795374461205091,1,1795374461205091,-1,'Y8|ÉÊJó¶ßΩaåè7','{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":3}'),
(464,3,'done',1,1795374461205091,2079198461205091,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":1}'),
(512,3,'dead',3,1795374461205091,NULL,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":1}'),
(688,4,'done',1,1795374461205091,2079198461205091,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":1}'),
(736,4,'dead',3,1795374461205091,NULL,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"dead\",\"n\":1}');
/*!40000 ALTER TABLE `seriatim_ended` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_expiry`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_expiry` (
  `seq` bigint(20) NOT NULL,
  `at` bigint(20) NOT NULL,
  PRIMARY KEY (`seq`),
  KEY `expiry_at` (`at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_expiry` WRITE;
/*!40000 ALTER TABLE `seriatim_expiry` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_expiry` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_extension`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_extension` (
  `lane` bigint(20) NOT NULL,
  `tok` bigint(20) NOT NULL,
  `until` bigint(20) NOT NULL,
  PRIMARY KEY (`lane`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_extension` WRITE;
/*!40000 ALTER TABLE `seriatim_extension` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_extension` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_flag`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_flag` (
  `seq` bigint(20) NOT NULL,
  `lane` bigint(20) NOT NULL,
  PRIMARY KEY (`seq`),
  KEY `flag_lane` (`lane`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_flag` WRITE;
/*!40000 ALTER TABLE `seriatim_flag` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_flag` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_gate`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_gate` (
  `q` int(11) NOT NULL,
  `claims` tinyint(4) NOT NULL,
  PRIMARY KEY (`q`,`claims`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_gate` WRITE;
/*!40000 ALTER TABLE `seriatim_gate` DISABLE KEYS */;
INSERT INTO `seriatim_gate` VALUES
(1,0),
(1,1),
(2,0),
(2,1),
(3,0),
(3,1),
(4,0),
(4,1);
/*!40000 ALTER TABLE `seriatim_gate` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_idempotency`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_idempotency` (
  `q` int(11) NOT NULL,
  `k` varbinary(512) NOT NULL,
  `name` varbinary(256) NOT NULL,
  `job` varbinary(16) NOT NULL,
  `until` bigint(20) NOT NULL,
  PRIMARY KEY (`q`,`k`,`name`),
  KEY `idempotency_until` (`until`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_idempotency` WRITE;
/*!40000 ALTER TABLE `seriatim_idempotency` DISABLE KEYS */;
INSERT INTO `seriatim_idempotency` VALUES
(1,'','once','¢®1p\0Ä\0\0\0\0\0‡',2079198461205091),
(2,'later','once','¢®1p\0Ä\0\0\0\0¿',2079198461205091),
(3,'later','once','¢®1p\0Ä\0\0\0\0†',2079198461205091),
(4,'later','once','¢®1p\0Ä\0\0\0\0Ä',2079198461205091);
/*!40000 ALTER TABLE `seriatim_idempotency` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_inbox`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_inbox` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `queue` text DEFAULT NULL,
  `key` text DEFAULT NULL,
  `payload` longtext DEFAULT NULL,
  `task` text DEFAULT NULL,
  `score` double DEFAULT NULL,
  `priority` int(11) DEFAULT NULL,
  `run_at` timestamp(6) NULL DEFAULT NULL,
  `expires_at` timestamp(6) NULL DEFAULT NULL,
  `idempotency_key` text DEFAULT NULL,
  `node` text DEFAULT NULL,
  `consumer_group` text DEFAULT NULL,
  `partition_key` text DEFAULT NULL,
  `producer` text DEFAULT NULL,
  `action` varchar(64) NOT NULL DEFAULT 'push',
  `job_id` text DEFAULT NULL,
  `inserted_at` timestamp(6) NOT NULL DEFAULT current_timestamp(6),
  `refused` text DEFAULT NULL,
  `refused_at` timestamp(6) NULL DEFAULT NULL,
  `waits` tinyint(4) GENERATED ALWAYS AS (`refused` is null) VIRTUAL,
  PRIMARY KEY (`id`),
  KEY `inbox_waiting` (`waits`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_inbox` WRITE;
/*!40000 ALTER TABLE `seriatim_inbox` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_inbox` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_job`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_job` (
  `seq` bigint(20) NOT NULL,
  `q` int(11) NOT NULL,
  `lane` bigint(20) NOT NULL,
  `gen` bigint(20) NOT NULL,
  `ord` varbinary(24) NOT NULL,
  `created` bigint(20) NOT NULL,
  `score` double NOT NULL,
  `prio` int(11) NOT NULL,
  `run_at` bigint(20) NOT NULL,
  `attempts` int(11) NOT NULL,
  `started` bigint(20) DEFAULT NULL,
  `retry` int(11) NOT NULL,
  `digest` binary(16) DEFAULT NULL,
  `rest` mediumblob DEFAULT NULL,
  `payload` longblob DEFAULT NULL,
  PRIMARY KEY (`seq`),
  KEY `job_lane` (`lane`,`gen`,`ord`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_job` WRITE;
/*!40000 ALTER TABLE `seriatim_job` DISABLE KEYS */;
INSERT INTO `seriatim_job` VALUES
(352,2,336,1,'\\j/föO|ó8F©\\<F',1795374461205091,2,100,1795374461205091,1,1795374461205091,-1,'\\j/föO|ó8F©\\<F','{\"task\":\"work\"}','{\"key\":\"failed\",\"n\":2}'),
(368,2,336,1,'´¢p_±â4õ~\Z@ﬂ#',1795374461205091,3,100,1795374461205091,1,1795374461205091,-1,'´¢p_±â4õ~\Z@ﬂ#','{\"task\":\"work\"}','{\"key\":\"failed\",\"n\":3}'),
(400,2,384,0,'¬lël˝ñWWGÌNºã',1795374461205091,2,100,1795374461205091,0,NULL,-1,'¬lël˝ñWWGÌNºã','{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":2}'),
(416,2,384,0,';Ì∑ wo`(kQ6Ç',1795374461205091,3,100,1795374461205091,0,NULL,-1,';Ì∑ wo`(kQ6Ç','{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":3}'),
(480,3,464,0,'¿\0\0\0\0\0\0\0',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":2}'),
(496,3,464,0,'¿\0\0\0\0\0\0',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":3}'),
(528,3,512,0,'¿\0\0\0\0\0\0\0',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"dead\",\"n\":2}'),
(544,3,512,0,'¿\0\0\0\0\0\0',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"dead\",\"n\":3}'),
(576,3,560,0,'¿\0\0\0\0\0\0\0',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"failed\",\"n\":2}'),
(592,3,560,0,'¿\0\0\0\0\0\0',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"failed\",\"n\":3}'),
(624,3,608,0,'¿\0\0\0\0\0\0\0',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":2}'),
(640,3,608,0,'¿\0\0\0\0\0\0',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":3}'),
(704,4,688,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":2}'),
(720,4,688,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"done\",\"n\":3}'),
(752,4,736,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"dead\",\"n\":2}'),
(768,4,736,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"dead\",\"n\":3}'),
(800,4,784,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"failed\",\"n\":2}'),
(816,4,784,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"failed\",\"n\":3}'),
(848,4,832,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":2}'),
(864,4,832,0,'\0Ä\0\0\0\0\0\0dÄ`‚0ˇ∫c',1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":3}');
/*!40000 ALTER TABLE `seriatim_job` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_jobs`;
/*!50001 DROP VIEW IF EXISTS `seriatim_jobs`*/;
SET @saved_cs_client     = @@character_set_client;
SET character_set_client = utf8mb4;
/*!50001 CREATE VIEW `seriatim_jobs` AS SELECT
 NULL AS `job_id`,
 NULL AS `queue`,
 NULL AS `key`,
 NULL AS `task`,
 NULL AS `state`,
 NULL AS `node`,
 NULL AS `consumer_group`,
 NULL AS `producer`,
 NULL AS `partition_key`,
 NULL AS `idempotency_key`,
 NULL AS `priority`,
 NULL AS `score`,
 NULL AS `attempt`,
 NULL AS `retry_count`,
 NULL AS `crashes`,
 NULL AS `error`,
 NULL AS `cancel_requested`,
 NULL AS `created_at`,
 NULL AS `run_at`,
 NULL AS `started_at`,
 NULL AS `finished_at`,
 NULL AS `claimed_by`,
 NULL AS `heartbeat_at`,
 NULL AS `progress`,
 NULL AS `payload` */;
SET character_set_client = @saved_cs_client;
DROP TABLE IF EXISTS `seriatim_lane`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_lane` (
  `id` bigint(20) NOT NULL,
  `q` int(11) NOT NULL,
  `k` varbinary(512) DEFAULT NULL,
  `st` tinyint(4) NOT NULL,
  `class` int(11) NOT NULL DEFAULT 0,
  `prio` int(11) NOT NULL DEFAULT 0,
  `due` bigint(20) NOT NULL DEFAULT 0,
  `wake` bigint(20) DEFAULT NULL,
  `tok` bigint(20) NOT NULL DEFAULT 0,
  `open` bigint(20) NOT NULL DEFAULT 0,
  `n` int(11) NOT NULL DEFAULT 0,
  `c` int(11) NOT NULL DEFAULT 0,
  `taken` bigint(20) NOT NULL DEFAULT 0,
  `flags` tinyint(4) NOT NULL DEFAULT 0,
  `retry` int(11) NOT NULL DEFAULT -1,
  `crashes` int(11) NOT NULL DEFAULT 0,
  `error` blob DEFAULT NULL,
  `next_due` bigint(20) DEFAULT NULL,
  `route` int(11) NOT NULL DEFAULT 0,
  `soonest` int(11) DEFAULT NULL,
  `node` bigint(20) NOT NULL DEFAULT 0,
  `own` tinyint(4) NOT NULL DEFAULT 0,
  `ttl` bigint(20) NOT NULL DEFAULT 0,
  `until` bigint(20) NOT NULL DEFAULT 0,
  `claimed_at` bigint(20) NOT NULL DEFAULT 0,
  `beat_at` bigint(20) NOT NULL DEFAULT 0,
  `progress` mediumblob DEFAULT NULL,
  `j_gen` bigint(20) DEFAULT NULL,
  `j_created` bigint(20) DEFAULT NULL,
  `j_score` double DEFAULT NULL,
  `j_prio` int(11) DEFAULT NULL,
  `j_run_at` bigint(20) DEFAULT NULL,
  `j_attempts` int(11) DEFAULT NULL,
  `j_started` bigint(20) DEFAULT NULL,
  `j_retry` int(11) DEFAULT NULL,
  `j_digest` binary(16) DEFAULT NULL,
  `j_rest` mediumblob DEFAULT NULL,
  `payload` longblob DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `lane_key` (`q`,`k`),
  KEY `lane_ready` (`q`,`st`,`class`,`prio`,`due`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_lane` WRITE;
/*!40000 ALTER TABLE `seriatim_lane` DISABLE KEYS */;
INSERT INTO `seriatim_lane` VALUES
(112,1,NULL,1,0,0,1795375061205091,1795375061205091,1795374461205091,1,1,0,0,0,0,0,'no paper',NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,1,1795374461205091,1,100,1795375061205091,1,1795374461205091,0,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"failed\",\"n\":1}'),
(128,1,NULL,1,0,0,1795375061205091,1795375061205091,1795374461205091,1,1,0,0,0,0,0,'no paper',NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,1,1795374461205091,2,100,1795375061205091,1,1795374461205091,0,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"failed\",\"n\":2}'),
(144,1,NULL,1,0,0,1795375061205091,1795375061205091,1795374461205091,1,1,0,0,0,0,0,'no paper',NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,1,1795374461205091,3,100,1795375061205091,1,1795374461205091,0,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"failed\",\"n\":3}'),
(160,1,NULL,2,0,0,1795374461205091,NULL,1795374461205091,1,0,1,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,0,1795374461205091,1,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":1}'),
(176,1,NULL,2,0,0,1795374461205091,NULL,1795374461205091,1,0,1,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,0,1795374461205091,2,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":2}'),
(192,1,NULL,2,0,0,1795374461205091,NULL,1795374461205091,1,0,1,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,0,1795374461205091,3,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":3}'),
(208,1,NULL,0,0,100,1795374461205091,NULL,0,0,1,0,0,0,-1,0,NULL,NULL,0,NULL,0,0,0,0,0,0,NULL,0,1795374461205091,1,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"waits\",\"n\":1}'),
(224,1,NULL,1,0,0,4102444800000000,4102444800000000,0,0,1,0,0,0,-1,0,NULL,NULL,0,NULL,0,0,0,0,0,0,NULL,0,1795374461205091,7,100,4102444800000000,0,NULL,-1,NULL,'{\"task\":\"work\",\"options\":{\"idempotency_key\":\"once\"}}','{\"key\":\"later\",\"n\":7}'),
(336,2,'failed',1,0,0,1795375061205091,1795375061205091,1795374461205092,1,3,0,0,0,0,0,'no paper',NULL,0,100,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,1,1795374461205091,1,100,1795374461205091,1,1795374461205091,-1,'ë—„@aÀjDvI3¢>;P','{\"task\":\"work\"}','{\"key\":\"failed\",\"n\":1}'),
(384,2,'held by a node',2,0,0,1795374461205091,NULL,1795374461205092,1,0,3,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,0,1795374461205091,1,100,1795374461205091,0,NULL,-1,'⁄!l4BâCö0~ö¶ûX8','{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":1}'),
(432,2,'waits',0,0,100,1795374461205091,NULL,0,0,1,0,0,0,-1,0,NULL,NULL,0,100,0,0,0,0,0,0,NULL,0,1795374461205091,1,100,1795374461205091,0,NULL,-1,'é¯âùÂ0kµ6cΩŒ~ü','{\"task\":\"work\"}','{\"key\":\"waits\",\"n\":1}'),
(448,2,'later',1,0,0,4102444800000000,4102444800000000,0,0,1,0,0,0,-1,0,NULL,NULL,0,100,0,0,0,0,0,0,NULL,0,1795374461205091,7,100,4102444800000000,0,NULL,-1,'ñÂßFH]Cê∞o4Æ/„','{\"task\":\"work\",\"options\":{\"idempotency_key\":\"once\"}}','{\"key\":\"later\",\"n\":7}'),
(464,3,'done',0,0,100,1795374461205091,NULL,1795374461205093,0,2,0,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),
(512,3,'dead',0,0,100,1795374461205091,NULL,1795374461205093,0,2,0,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),
(560,3,'failed',1,0,0,1795375061205091,1795375061205091,1795374461205093,0,3,0,0,0,0,0,'no paper',NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,0,1795374461205091,1,100,1795375061205091,1,1795374461205091,0,NULL,'{\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"failed\",\"n\":1}'),
(608,3,'held by a node',2,0,0,1795374461205091,NULL,1795374461205093,0,2,1,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,-1,1795374461205091,1,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":1}'),
(656,3,'waits',0,0,100,1795374461205091,NULL,0,0,1,0,0,0,-1,0,NULL,NULL,0,NULL,0,0,0,0,0,0,NULL,0,1795374461205091,1,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"waits\",\"n\":1}'),
(672,3,'later',1,0,0,4102444800000000,4102444800000000,0,0,1,0,0,0,-1,0,NULL,NULL,0,NULL,0,0,0,0,0,0,NULL,0,1795374461205091,7,100,4102444800000000,0,NULL,-1,NULL,'{\"task\":\"work\",\"options\":{\"idempotency_key\":\"once\"}}','{\"key\":\"later\",\"n\":7}'),
(688,4,'done',0,0,100,1795374461205091,NULL,1795374461205094,0,2,0,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),
(736,4,'dead',0,0,100,1795374461205091,NULL,1795374461205094,0,2,0,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL),
(784,4,'failed',0,0,100,1795374461205091,1795375061205091,1795374461205094,0,3,0,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,0,1795374461205091,1,100,1795375061205091,1,1795374461205091,0,NULL,'{\"later\":true,\"task\":\"work\",\"error\":\"no paper\"}','{\"key\":\"failed\",\"n\":1}'),
(832,4,'held by a node',2,0,0,1795374461205091,NULL,1795374461205094,0,2,1,0,0,-1,0,NULL,NULL,0,NULL,2,0,60000000,1795374521205091,1795374461205091,1795374461205091,NULL,-1,1795374461205091,1,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"held by a node\",\"n\":1}'),
(880,4,'waits',0,0,100,1795374461205091,NULL,0,0,1,0,0,0,-1,0,NULL,NULL,0,NULL,0,0,0,0,0,0,NULL,0,1795374461205091,1,100,1795374461205091,0,NULL,-1,NULL,'{\"task\":\"work\"}','{\"key\":\"waits\",\"n\":1}'),
(896,4,'later',1,0,0,4102444800000000,4102444800000000,0,0,1,0,0,0,-1,0,NULL,NULL,0,NULL,0,0,0,0,0,0,NULL,0,1795374461205091,7,100,4102444800000000,0,NULL,-1,NULL,'{\"later\":true,\"task\":\"work\",\"options\":{\"idempotency_key\":\"once\"}}','{\"key\":\"later\",\"n\":7}');
/*!40000 ALTER TABLE `seriatim_lane` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_lanes`;
/*!50001 DROP VIEW IF EXISTS `seriatim_lanes`*/;
SET @saved_cs_client     = @@character_set_client;
SET character_set_client = utf8mb4;
/*!50001 CREATE VIEW `seriatim_lanes` AS SELECT
 NULL AS `queue`,
 NULL AS `key`,
 NULL AS `state`,
 NULL AS `jobs`,
 NULL AS `due`,
 NULL AS `priority`,
 NULL AS `retry_count`,
 NULL AS `crashes`,
 NULL AS `error`,
 NULL AS `token`,
 NULL AS `node`,
 NULL AS `claimed_at`,
 NULL AS `lease_until`,
 NULL AS `progress` */;
SET character_set_client = @saved_cs_client;
DROP TABLE IF EXISTS `seriatim_leader`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_leader` (
  `role` varbinary(256) NOT NULL,
  `node` varbinary(512) NOT NULL,
  `until` bigint(20) NOT NULL,
  PRIMARY KEY (`role`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_leader` WRITE;
/*!40000 ALTER TABLE `seriatim_leader` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_leader` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_meta`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_meta` (
  `id` tinyint(4) NOT NULL,
  `version` int(11) NOT NULL,
  `definitions` bigint(20) NOT NULL DEFAULT 1,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_meta` WRITE;
/*!40000 ALTER TABLE `seriatim_meta` DISABLE KEYS */;
INSERT INTO `seriatim_meta` VALUES
(1,7,1795460861204264);
/*!40000 ALTER TABLE `seriatim_meta` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_morgue`;
/*!50001 DROP VIEW IF EXISTS `seriatim_morgue`*/;
SET @saved_cs_client     = @@character_set_client;
SET character_set_client = utf8mb4;
/*!50001 CREATE VIEW `seriatim_morgue` AS SELECT
 NULL AS `job_id`,
 NULL AS `queue`,
 NULL AS `key`,
 NULL AS `task`,
 NULL AS `score`,
 NULL AS `attempt`,
 NULL AS `retry_count`,
 NULL AS `crashes`,
 NULL AS `error`,
 NULL AS `created_at`,
 NULL AS `died_at`,
 NULL AS `payload` */;
SET character_set_client = @saved_cs_client;
DROP TABLE IF EXISTS `seriatim_node`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_node` (
  `id` varbinary(512) NOT NULL,
  `number` bigint(20) NOT NULL AUTO_INCREMENT,
  `info` mediumblob NOT NULL,
  `beat_at` bigint(20) NOT NULL,
  `dead_at` bigint(20) DEFAULT NULL,
  `command` varbinary(16) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `node_number` (`number`)
) ENGINE=InnoDB AUTO_INCREMENT=3 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_node` WRITE;
/*!40000 ALTER TABLE `seriatim_node` DISABLE KEYS */;
INSERT INTO `seriatim_node` VALUES
('hand-1',1,'{\"id\":\"hand-1\",\"name\":\"hand-1\",\"host\":\"\",\"pid\":12374,\"version\":\"0.1.0\",\"queues\":[\"parallel\",\"accumulate\",\"fifo\",\"exclusive\"],\"concurrency\":1,\"busy\":0,\"started_at\":1795460861205091,\"lease\":\"1m\",\"troubles\":[],\"origin\":null}',1795460861205091,NULL,NULL),
('old',2,'{\"id\":\"old\",\"name\":\"hand-1\",\"host\":\"\",\"pid\":12374,\"version\":\"0.1.0\",\"queues\":[\"parallel\",\"accumulate\",\"fifo\",\"exclusive\"],\"concurrency\":1,\"busy\":0,\"started_at\":1795460861205091,\"lease\":\"1m\",\"troubles\":[],\"origin\":null}',1795374461205091,NULL,NULL);
/*!40000 ALTER TABLE `seriatim_node` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_nodes`;
/*!50001 DROP VIEW IF EXISTS `seriatim_nodes`*/;
SET @saved_cs_client     = @@character_set_client;
SET character_set_client = utf8mb4;
/*!50001 CREATE VIEW `seriatim_nodes` AS SELECT
 NULL AS `node`,
 NULL AS `name`,
 NULL AS `host`,
 NULL AS `pid`,
 NULL AS `version`,
 NULL AS `heartbeat_at`,
 NULL AS `alive`,
 NULL AS `told`,
 NULL AS `lanes` */;
SET character_set_client = @saved_cs_client;
DROP TABLE IF EXISTS `seriatim_note`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_note` (
  `name` varbinary(200) NOT NULL,
  `value` blob NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_note` WRITE;
/*!40000 ALTER TABLE `seriatim_note` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_note` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_number`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_number` (
  `n` bigint(20) NOT NULL AUTO_INCREMENT,
  PRIMARY KEY (`n`)
) ENGINE=InnoDB AUTO_INCREMENT=57 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_number` WRITE;
/*!40000 ALTER TABLE `seriatim_number` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_number` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_queue`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_queue` (
  `number` int(11) NOT NULL,
  `name` varbinary(128) NOT NULL,
  `definition` mediumblob NOT NULL,
  `declared` tinyint(4) NOT NULL,
  `paused` tinyint(4) NOT NULL DEFAULT 0,
  PRIMARY KEY (`number`),
  UNIQUE KEY `queue_name` (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_queue` WRITE;
/*!40000 ALTER TABLE `seriatim_queue` DISABLE KEYS */;
INSERT INTO `seriatim_queue` VALUES
(1,'parallel','{\"name\":\"parallel\",\"mode\":\"parallel\",\"merge\":\"min\",\"due\":\"first\",\"take\":1,\"batch_size\":1,\"max_retries\":1,\"backoff\":{\"kind\":\"polynomial\"},\"exhausted\":\"bury\",\"max_crashes\":5,\"timeout\":null,\"lease\":null,\"lease_max\":\"1h\",\"retain_completed\":\"3285d\",\"retain_dead\":\"3285d\",\"retain_dead_max\":100000,\"idempotency_ttl\":\"3285d\",\"weight\":1,\"shards\":1}',1,0),
(2,'accumulate','{\"name\":\"accumulate\",\"mode\":\"accumulate\",\"merge\":\"min\",\"due\":\"first\",\"take\":1,\"batch_size\":1,\"max_retries\":1,\"backoff\":{\"kind\":\"polynomial\"},\"exhausted\":\"bury\",\"max_crashes\":5,\"timeout\":null,\"lease\":null,\"lease_max\":\"1h\",\"retain_completed\":\"3285d\",\"retain_dead\":\"3285d\",\"retain_dead_max\":100000,\"idempotency_ttl\":\"3285d\",\"weight\":1,\"shards\":1}',1,0),
(3,'fifo','{\"name\":\"fifo\",\"mode\":\"fifo\",\"merge\":\"min\",\"due\":\"first\",\"take\":1,\"batch_size\":1,\"max_retries\":1,\"backoff\":{\"kind\":\"polynomial\"},\"exhausted\":\"bury\",\"max_crashes\":5,\"timeout\":null,\"lease\":null,\"lease_max\":\"1h\",\"retain_completed\":\"3285d\",\"retain_dead\":\"3285d\",\"retain_dead_max\":100000,\"idempotency_ttl\":\"3285d\",\"weight\":1,\"shards\":1}',1,0),
(4,'exclusive','{\"name\":\"exclusive\",\"mode\":\"exclusive\",\"merge\":\"min\",\"due\":\"first\",\"take\":1,\"batch_size\":1,\"max_retries\":1,\"backoff\":{\"kind\":\"polynomial\"},\"exhausted\":\"bury\",\"max_crashes\":5,\"timeout\":null,\"lease\":null,\"lease_max\":\"1h\",\"retain_completed\":\"3285d\",\"retain_dead\":\"3285d\",\"retain_dead_max\":100000,\"idempotency_ttl\":\"3285d\",\"weight\":1,\"shards\":1}',1,0);
/*!40000 ALTER TABLE `seriatim_queue` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_ring`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_ring` (
  `n` bigint(20) NOT NULL AUTO_INCREMENT,
  `q` int(11) NOT NULL,
  `p` bigint(20) NOT NULL,
  PRIMARY KEY (`n`)
) ENGINE=InnoDB AUTO_INCREMENT=43 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_ring` WRITE;
/*!40000 ALTER TABLE `seriatim_ring` DISABLE KEYS */;
INSERT INTO `seriatim_ring` VALUES
(1,1,4067381339815727280),
(2,1,4067381339815727280),
(3,1,4067381339815727280),
(4,1,4067381339815727280),
(5,1,4067381339815727280),
(6,1,4067381339815727280),
(7,1,4067381339815727280),
(8,1,4067381339815727280),
(9,1,4067381339815727280),
(10,1,4067381339815727280),
(11,1,4067381339815727280),
(12,1,4067381339815727280),
(13,1,4067381339815727280),
(14,1,4067381339815727280),
(15,1,4067381339815727280),
(16,1,4067381339815727280),
(17,1,4067381339815727280),
(18,2,4067381339815727280),
(19,2,4067381339815727280),
(20,2,4067381339815727280),
(21,2,4067381339815727280),
(22,2,4067381339815727280),
(23,2,4067381339815727280),
(24,2,4067381339815727280),
(25,3,4067381339815727280),
(26,3,4067381339815727280),
(27,3,4067381339815727280),
(28,3,4067381339815727280),
(29,3,4067381339815727280),
(30,3,4067381339815727280),
(31,3,4067381339815727280),
(32,3,4067381339815727280),
(33,3,4067381339815727280),
(34,4,4067381339815727280),
(35,4,4067381339815727280),
(36,4,4067381339815727280),
(37,4,4067381339815727280),
(38,4,4067381339815727280),
(39,4,4067381339815727280),
(40,4,4067381339815727280),
(41,4,4067381339815727280),
(42,4,4067381339815727280);
/*!40000 ALTER TABLE `seriatim_ring` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_route`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_route` (
  `number` int(11) NOT NULL,
  `node` varbinary(256) DEFAULT NULL,
  `grp` varbinary(256) DEFAULT NULL,
  PRIMARY KEY (`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_route` WRITE;
/*!40000 ALTER TABLE `seriatim_route` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_route` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_secret`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_secret` (
  `id` tinyint(4) NOT NULL,
  `bytes` varbinary(32) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_secret` WRITE;
/*!40000 ALTER TABLE `seriatim_secret` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_secret` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_tally`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_tally` (
  `q` int(11) NOT NULL,
  `lanes` bigint(20) NOT NULL,
  `jobs` bigint(20) NOT NULL,
  `claimed` bigint(20) NOT NULL,
  `retrying` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  `processed` bigint(20) NOT NULL,
  `failed` bigint(20) NOT NULL,
  PRIMARY KEY (`q`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_tally` WRITE;
/*!40000 ALTER TABLE `seriatim_tally` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_tally` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_ticket`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_ticket` (
  `node` varbinary(512) NOT NULL,
  `given_up` bigint(20) NOT NULL,
  PRIMARY KEY (`node`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_ticket` WRITE;
/*!40000 ALTER TABLE `seriatim_ticket` DISABLE KEYS */;
INSERT INTO `seriatim_ticket` VALUES
('hand-1',0),
('old',0);
/*!40000 ALTER TABLE `seriatim_ticket` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_token`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_token` (
  `tok` bigint(20) NOT NULL AUTO_INCREMENT,
  PRIMARY KEY (`tok`)
) ENGINE=InnoDB AUTO_INCREMENT=1795374461205095 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_token` WRITE;
/*!40000 ALTER TABLE `seriatim_token` DISABLE KEYS */;
/*!40000 ALTER TABLE `seriatim_token` ENABLE KEYS */;
UNLOCK TABLES;
DROP TABLE IF EXISTS `seriatim_wake`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `seriatim_wake` (
  `lane` bigint(20) NOT NULL,
  `q` int(11) NOT NULL,
  `wake` bigint(20) NOT NULL,
  PRIMARY KEY (`lane`),
  KEY `wake_first` (`q`,`wake`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

LOCK TABLES `seriatim_wake` WRITE;
/*!40000 ALTER TABLE `seriatim_wake` DISABLE KEYS */;
INSERT INTO `seriatim_wake` VALUES
(784,4,1795375061205091);
/*!40000 ALTER TABLE `seriatim_wake` ENABLE KEYS */;
UNLOCK TABLES;
/*!50001 DROP VIEW IF EXISTS `seriatim_jobs`*/;
/*!50001 SET @saved_cs_client          = @@character_set_client */;
/*!50001 SET @saved_cs_results         = @@character_set_results */;
/*!50001 SET @saved_col_connection     = @@collation_connection */;
/*!50001 SET character_set_client      = utf8mb4 */;
/*!50001 SET character_set_results     = utf8mb4 */;
/*!50001 SET collation_connection      = utf8mb4_general_ci */;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`seriatim`@`%` SQL SECURITY DEFINER */
/*!50001 VIEW `seriatim_jobs` AS select lcase(concat(lpad(hex(`j`.`created` DIV 65536000),8,'0'),'-',lpad(hex(`j`.`created` DIV 1000 & 65535),4,'0'),'-7000-',hex(32768 + `j`.`q`),'-',lpad(hex(`j`.`seq`),12,'0'))) AS `job_id`,convert(`q`.`name` using utf8mb4) AS `queue`,convert(`j`.`k` using utf8mb4) AS `key`,json_unquote(json_extract(`j`.`rest`,'$.task')) AS `task`,`j`.`state` AS `state`,json_unquote(json_extract(`j`.`rest`,'$.options.node')) AS `node`,json_unquote(json_extract(`j`.`rest`,'$.options.consumer_group')) AS `consumer_group`,json_unquote(json_extract(`j`.`rest`,'$.options.producer')) AS `producer`,json_unquote(json_extract(`j`.`rest`,'$.options.partition_key')) AS `partition_key`,json_unquote(json_extract(`j`.`rest`,'$.options.idempotency_key')) AS `idempotency_key`,`j`.`prio` AS `priority`,`j`.`score` AS `score`,`j`.`attempts` + (`j`.`state` = 'running') AS `attempt`,if(`q`.`definition` like '%"mode":"accumulate"%' and `l`.`id` is not null,`l`.`retry`,`j`.`retry`) AS `retry_count`,if(`q`.`definition` like '%"mode":"accumulate"%' and `l`.`id` is not null,`l`.`crashes`,coalesce(cast(json_unquote(json_extract(`j`.`rest`,'$.crashes')) as signed),0)) AS `crashes`,if(`q`.`definition` like '%"mode":"accumulate"%' and `l`.`id` is not null,convert(`l`.`error` using utf8mb4),json_unquote(json_extract(`j`.`rest`,'$.error'))) AS `error`,coalesce(json_unquote(json_extract(`j`.`rest`,'$.flagged')) = 'true',0) AS `cancel_requested`,from_unixtime(`j`.`created` * 0.000001) AS `created_at`,from_unixtime(`j`.`run_at` * 0.000001) AS `run_at`,from_unixtime(if(`j`.`state` = 'running',coalesce(`j`.`started`,`l`.`claimed_at`),`j`.`started`) * 0.000001) AS `started_at`,from_unixtime(`j`.`at` * 0.000001) AS `finished_at`,if(`j`.`state` = 'running',convert(`n`.`id` using utf8mb4),NULL) AS `claimed_by`,if(`j`.`state` = 'running',from_unixtime(if(`l`.`own`,`l`.`beat_at`,greatest(`l`.`beat_at`,coalesce(`n`.`beat_at`,0))) * 0.000001),NULL) AS `heartbeat_at`,if(`j`.`state` = 'running',convert(`l`.`progress` using utf8mb4),NULL) AS `progress`,convert(`j`.`payload` using utf8mb4) AS `payload` from ((((select `l`.`id` AS `seq`,`l`.`q` AS `q`,`l`.`k` AS `k`,`l`.`id` AS `lane`,if(`l`.`st` = 2 and `l`.`j_gen` < `l`.`open`,'running','queued') AS `state`,`l`.`j_created` AS `created`,`l`.`j_score` AS `score`,`l`.`j_prio` AS `prio`,`l`.`j_run_at` AS `run_at`,`l`.`j_attempts` AS `attempts`,`l`.`j_started` AS `started`,`l`.`j_retry` AS `retry`,convert(`l`.`j_rest` using utf8mb4) AS `rest`,`l`.`payload` AS `payload`,NULL AS `at` from `seriatim_lane` `l` where `l`.`j_gen` is not null union all select `j`.`seq` AS `seq`,`j`.`q` AS `q`,`l`.`k` AS `k`,`l`.`id` AS `id`,if(`l`.`st` = 2 and (`j`.`gen` < `l`.`open` or `j`.`seq` = `l`.`taken`),'running','queued'),`j`.`created` AS `created`,`j`.`score` AS `score`,`j`.`prio` AS `prio`,`j`.`run_at` AS `run_at`,`j`.`attempts` AS `attempts`,`j`.`started` AS `started`,`j`.`retry` AS `retry`,convert(`j`.`rest` using utf8mb4) AS `CONVERT(j.rest USING utf8mb4)`,`j`.`payload` AS `payload`,NULL AS `NULL` from (`seriatim_job` `j` join `seriatim_lane` `l` on(`l`.`id` = `j`.`lane`)) union all select `e`.`seq` AS `seq`,`e`.`q` AS `q`,`e`.`k` AS `k`,NULL AS `NULL`,elt(`e`.`state`,'succeeded','canceled','dead') AS `ELT(e.state, 'succeeded', 'canceled', 'dead')`,`e`.`created` AS `created`,`e`.`score` AS `score`,`e`.`prio` AS `prio`,`e`.`run_at` AS `run_at`,`e`.`attempts` AS `attempts`,`e`.`started` AS `started`,`e`.`retry` AS `retry`,convert(`e`.`rest` using utf8mb4) AS `CONVERT(e.rest USING utf8mb4)`,`e`.`payload` AS `payload`,`e`.`at` AS `at` from `seriatim_ended` `e`) `j` join `seriatim_queue` `q` on(`q`.`number` = `j`.`q`)) left join `seriatim_lane` `l` on(`l`.`id` = `j`.`lane`)) left join `seriatim_node` `n` on(`n`.`number` = `l`.`node` and `l`.`st` = 2)) */;
/*!50001 SET character_set_client      = @saved_cs_client */;
/*!50001 SET character_set_results     = @saved_cs_results */;
/*!50001 SET collation_connection      = @saved_col_connection */;
/*!50001 DROP VIEW IF EXISTS `seriatim_lanes`*/;
/*!50001 SET @saved_cs_client          = @@character_set_client */;
/*!50001 SET @saved_cs_results         = @@character_set_results */;
/*!50001 SET @saved_col_connection     = @@collation_connection */;
/*!50001 SET character_set_client      = utf8mb4 */;
/*!50001 SET character_set_results     = utf8mb4 */;
/*!50001 SET collation_connection      = utf8mb4_general_ci */;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`seriatim`@`%` SQL SECURITY DEFINER */
/*!50001 VIEW `seriatim_lanes` AS select convert(`q`.`name` using utf8mb4) AS `queue`,convert(`l`.`k` using utf8mb4) AS `key`,case `l`.`st` when 2 then 'claimed' when 3 then if(`l`.`flags` & 2,'paused','held') else 'waiting' end AS `state`,`l`.`n` + `l`.`c` AS `jobs`,from_unixtime(`l`.`due` * 0.000001) AS `due`,`l`.`prio` AS `priority`,`l`.`retry` AS `retry_count`,`l`.`crashes` AS `crashes`,convert(`l`.`error` using utf8mb4) AS `error`,if(`l`.`st` = 2,`l`.`tok`,NULL) AS `token`,convert(`n`.`id` using utf8mb4) AS `node`,if(`l`.`st` = 2,from_unixtime(`l`.`claimed_at` * 0.000001),NULL) AS `claimed_at`,if(`l`.`st` = 2 and `l`.`own` <> 0,from_unixtime(`l`.`until` * 0.000001),NULL) AS `lease_until`,if(`l`.`st` = 2,convert(`l`.`progress` using utf8mb4),NULL) AS `progress` from ((`seriatim_lane` `l` join `seriatim_queue` `q` on(`q`.`number` = `l`.`q`)) left join `seriatim_node` `n` on(`n`.`number` = `l`.`node` and `l`.`st` = 2)) where `l`.`st` <> 9 */;
/*!50001 SET character_set_client      = @saved_cs_client */;
/*!50001 SET character_set_results     = @saved_cs_results */;
/*!50001 SET collation_connection      = @saved_col_connection */;
/*!50001 DROP VIEW IF EXISTS `seriatim_morgue`*/;
/*!50001 SET @saved_cs_client          = @@character_set_client */;
/*!50001 SET @saved_cs_results         = @@character_set_results */;
/*!50001 SET @saved_col_connection     = @@collation_connection */;
/*!50001 SET character_set_client      = utf8mb4 */;
/*!50001 SET character_set_results     = utf8mb4 */;
/*!50001 SET collation_connection      = utf8mb4_general_ci */;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`seriatim`@`%` SQL SECURITY DEFINER */
/*!50001 VIEW `seriatim_morgue` AS select `seriatim_jobs`.`job_id` AS `job_id`,`seriatim_jobs`.`queue` AS `queue`,`seriatim_jobs`.`key` AS `key`,`seriatim_jobs`.`task` AS `task`,`seriatim_jobs`.`score` AS `score`,`seriatim_jobs`.`attempt` AS `attempt`,`seriatim_jobs`.`retry_count` AS `retry_count`,`seriatim_jobs`.`crashes` AS `crashes`,`seriatim_jobs`.`error` AS `error`,`seriatim_jobs`.`created_at` AS `created_at`,`seriatim_jobs`.`finished_at` AS `died_at`,`seriatim_jobs`.`payload` AS `payload` from `seriatim_jobs` where `seriatim_jobs`.`state` = 'dead' */;
/*!50001 SET character_set_client      = @saved_cs_client */;
/*!50001 SET character_set_results     = @saved_cs_results */;
/*!50001 SET collation_connection      = @saved_col_connection */;
/*!50001 DROP VIEW IF EXISTS `seriatim_nodes`*/;
/*!50001 SET @saved_cs_client          = @@character_set_client */;
/*!50001 SET @saved_cs_results         = @@character_set_results */;
/*!50001 SET @saved_col_connection     = @@collation_connection */;
/*!50001 SET character_set_client      = utf8mb4 */;
/*!50001 SET character_set_results     = utf8mb4 */;
/*!50001 SET collation_connection      = utf8mb4_general_ci */;
/*!50001 CREATE ALGORITHM=UNDEFINED */
/*!50013 DEFINER=`seriatim`@`%` SQL SECURITY DEFINER */
/*!50001 VIEW `seriatim_nodes` AS select convert(`n`.`id` using utf8mb4) AS `node`,json_unquote(json_extract(convert(`n`.`info` using utf8mb4),'$.name')) AS `name`,json_unquote(json_extract(convert(`n`.`info` using utf8mb4),'$.host')) AS `host`,cast(json_extract(convert(`n`.`info` using utf8mb4),'$.pid') as signed) AS `pid`,json_unquote(json_extract(convert(`n`.`info` using utf8mb4),'$.version')) AS `version`,from_unixtime(`n`.`beat_at` * 0.000001) AS `heartbeat_at`,`n`.`dead_at` is null AS `alive`,convert(`n`.`command` using utf8mb4) AS `told`,(select count(0) from `seriatim_lane` `l` where `l`.`st` = 2 and `l`.`node` = `n`.`number`) AS `lanes` from `seriatim_node` `n` */;
/*!50001 SET character_set_client      = @saved_cs_client */;
/*!50001 SET character_set_results     = @saved_cs_results */;
/*!50001 SET collation_connection      = @saved_col_connection */;
/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;

/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;
/*!40014 SET FOREIGN_KEY_CHECKS=@OLD_FOREIGN_KEY_CHECKS */;
/*!40014 SET UNIQUE_CHECKS=@OLD_UNIQUE_CHECKS */;
/*!40101 SET CHARACTER_SET_CLIENT=@OLD_CHARACTER_SET_CLIENT */;
/*!40101 SET CHARACTER_SET_RESULTS=@OLD_CHARACTER_SET_RESULTS */;
/*!40101 SET COLLATION_CONNECTION=@OLD_COLLATION_CONNECTION */;
/*!40111 SET SQL_NOTES=@OLD_SQL_NOTES */;

